//! Measuring a command, by counters of the machine it runs on, between the marks it gives.

use std::io::{BufRead, BufReader, Write};
use std::process::ChildStdin;

use anyhow::{Context, Result, bail, ensure};
use tests::mark::{self, Mark};

use crate::cost::{Cost, Line, Side};
use crate::counters::{Counters, Instrument};
use crate::images;
use crate::interrupts::Interrupts;
use crate::machines::Machines;
use crate::piped::started;
use crate::setting::CROWD;

/// What goes on beside the command.
pub(crate) struct Beside {
    pub(crate) interrupted: bool,
    /// The command of machines that do nothing.
    pub(crate) machines: Vec<String>,
}

/// `bench measure SIDE --by INSTRUMENT -- CMD..`
pub(crate) fn run(side: Side, instrument: Instrument, beside: &Beside, command: &[String]) -> Result<()> {
    let number = if beside.machines.is_empty() { 0 } else { CROWD };
    // They have none of the counters, which are opened after.
    let mut machines = Machines::default();
    machines.grow(number, images::FIRST_WORDS, &beside.machines)?;
    let mut counters = Counters::open(instrument, side)?;
    let mut child = started(command)?;
    let _interrupts = beside.interrupted.then(Interrupts::begin).transpose()?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("no pipes")
    };
    let mut measuring = Measuring { side, begun: Vec::new(), done: None, progress: Progress::default() };
    let outcome = measuring.follow(&mut counters, BufReader::new(output), &mut input);
    drop(input);
    let status = child.wait()?;
    outcome?;
    drop(machines);
    ensure!(status.success(), "{} ended with {status}", command[0]);
    Ok(())
}

/// What is known of an operation that is being measured.
struct Measuring {
    side: Side,
    /// Its two lengths, and the counters before each.
    begun: Vec<(String, u64, Cost)>,
    done: Option<(String, Repeated)>,
    progress: Progress,
}

/// What the same came to each time.
enum Repeated {
    Costs(Vec<Cost>),
    /// Known and counted.
    Counts(Vec<(u64, u64)>),
}

impl Measuring {
    /// Read the counters at each mark and answer it; write what each operation cost.
    fn follow(
        &mut self,
        counters: &mut Counters,
        output: impl BufRead,
        input: &mut ChildStdin,
    ) -> Result<()> {
        for line in output.lines() {
            let line = line?;
            let Some(mark) = mark::parse(&line) else {
                if !line.trim().is_empty() {
                    eprintln!("{line}");
                }
                continue;
            };
            let mark = mark?;
            let now = match mark {
                // What the guest knows by itself may need all counters.
                Mark::Counted { .. } | Mark::NotRun { .. } => Cost::default(),
                Mark::Begin { .. } | Mark::End | Mark::Compare { .. } => counters.read()?,
            };
            self.at(mark, now)?;
            input.write_all(b"\n")?;
            input.flush()?;
        }
        self.write_done()
    }

    fn at(&mut self, mark: Mark, now: Cost) -> Result<()> {
        match mark {
            Mark::Begin { name, length } => {
                self.progress.at(&name);
                if self.done.as_ref().is_some_and(|(of, _)| *of != name) {
                    self.write_done()?;
                }
                self.begun.push((name, length, now));
            }
            Mark::End => {
                let (name, times, cost) = self.difference(now)?;
                let cost = cost.map2(cost, |cost, _| cost / times as f64);
                match &mut self.done {
                    Some((_, Repeated::Costs(costs))) => costs.push(cost),
                    _ => self.done = Some((name, Repeated::Costs(vec![cost]))),
                }
            }
            Mark::Compare { apart, counted } => {
                let (name, _, cost) = self.difference(now)?;
                let known = cost.instructions().filter(|_| self.side == Side::Guest);
                let Some(known) = known.map(|all| all - apart as f64) else {
                    let reason = format!("not counted from outside: {cost:?}");
                    return write(&Line::NotRun { name, reason });
                };
                match &mut self.done {
                    Some((_, Repeated::Counts(counts))) => counts.push((known as u64, counted)),
                    _ => self.done = Some((name, Repeated::Counts(vec![(known as u64, counted)]))),
                }
            }
            Mark::Counted { name, known, counted } => {
                self.progress.at(&name);
                self.write_done()?;
                write(&Line::Counted { name, known, counted })?;
            }
            Mark::NotRun { name, reason } => {
                self.write_done()?;
                write(&Line::NotRun { name, reason })?;
            }
        }
        Ok(())
    }

    /// Of an operation that is done: how many times the longer length had more, and what those took.
    fn difference(&mut self, now: Cost) -> Result<(String, u64, Cost)> {
        let begun = std::mem::take(&mut self.begun);
        let [(name, short, first), (_, long, second)] = &begun[..] else {
            bail!("an operation has two lengths")
        };
        let times =
            long.checked_sub(*short).filter(|times| *times > 0).context("the second is the longer")?;
        let (once, thrice) = (second.map2(*first, |b, a| b - a), now.map2(*second, |b, a| b - a));
        Ok((name.clone(), times, thrice.map2(once, |long, short| long - short)))
    }

    /// The median.
    fn write_done(&mut self) -> Result<()> {
        match self.done.take() {
            None => Ok(()),
            Some((name, Repeated::Costs(costs))) => {
                let of = |of: fn(&Cost) -> f64| {
                    let mut values: Vec<f64> = costs.iter().map(of).collect();
                    values.sort_by(f64::total_cmp);
                    values[values.len() / 2]
                };
                let cost = Cost {
                    user: of(|cost| cost.user),
                    kernel: of(|cost| cost.kernel),
                    total: of(|cost| cost.total),
                    exits: of(|cost| cost.exits),
                    user_exits: of(|cost| cost.user_exits),
                };
                write(&Line::Cost { name, cost })
            }
            Some((name, Repeated::Counts(mut counts))) => {
                counts.sort_by_key(|&(known, counted)| counted.wrapping_sub(known) as i64);
                let (known, counted) = counts[counts.len() / 2];
                write(&Line::Counted { name, known, counted })
            }
        }
    }
}

fn write(line: &Line) -> Result<()> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}

/// Says which operation is being measured.
#[derive(Default)]
struct Progress(String);

impl Progress {
    fn at(&mut self, name: &str) {
        if self.0 != name {
            eprintln!("  {name}");
            name.clone_into(&mut self.0);
        }
    }
}
