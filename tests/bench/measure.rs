//! Measuring a command, by counters of the machine it runs on, between the marks it gives.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Deserializer, Serialize};
use tests::mark::{self, Mark};

use crate::counters::{Counters, Instrument};

/// Whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Side {
    Host,
    Guest,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Guest => "guest",
        }
    }
}

/// What was counted between two marks, or in one operation on average. What could not be counted is not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Instructions in user mode of the side that is measured.
    #[serde(deserialize_with = "number")]
    pub(crate) user: f64,
    /// Instructions in kernel mode.
    #[serde(deserialize_with = "number")]
    pub(crate) kernel: f64,
    /// In both; where there was room for one counter only, this alone.
    #[serde(default = "unknown", deserialize_with = "number")]
    pub(crate) total: f64,
    /// Exits of the guest.
    #[serde(deserialize_with = "number")]
    pub(crate) exits: f64,
    /// Exits that reached the VMM.
    #[serde(deserialize_with = "number")]
    pub(crate) user_exits: f64,
}

fn unknown() -> f64 {
    f64::NAN
}

/// JSON has null for what is not a number.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Cost {
    /// Instructions in both modes, if they were counted.
    pub(crate) fn instructions(&self) -> Option<f64> {
        [self.total, self.user + self.kernel].into_iter().find(|sum| sum.is_finite())
    }

    fn map2(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            user: f(self.user, other.user),
            kernel: f(self.kernel, other.kernel),
            total: f(self.total, other.total),
            exits: f(self.exits, other.exits),
            user_exits: f(self.user_exits, other.user_exits),
        }
    }
}

/// One line of what this writes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    Cost { name: String, cost: Cost },
    NotRun { name: String, reason: String },
    Counted { name: String, known: u64, counted: u64 },
}

/// What `bench measure` wrote.
pub(crate) fn lines(from: impl BufRead) -> Result<Vec<Line>> {
    from.lines()
        .map(|line| serde_json::from_str(&line?).context("what was measured cannot be read"))
        .collect()
}

/// The command, with pipes to it and from it.
pub(crate) fn started(command: &[String]) -> Result<Child> {
    Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| command[0].clone())
}

/// `bench measure SIDE --by INSTRUMENT -- CMD..`
pub(crate) fn run(side: Side, instrument: Instrument, command: &[String]) -> Result<()> {
    let mut counters = Counters::open(instrument, side)?;
    let mut child = started(command)?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("no pipes")
    };
    let outcome = follow(&mut counters, BufReader::new(output), &mut input);
    drop(input);
    let status = child.wait()?;
    outcome?;
    ensure!(status.success(), "{} ended with {status}", command[0]);
    Ok(())
}

/// Read the counters at each mark and answer it; write what each operation cost.
fn follow(counters: &mut Counters, output: impl BufRead, input: &mut ChildStdin) -> Result<()> {
    let mut begun: Vec<(String, u64, Cost)> = Vec::new();
    // Of one operation, so far.
    let mut costs: Option<(String, Vec<Cost>)> = None;
    let mut progress = Progress::default();
    for line in output.lines() {
        let line = line?;
        let Some(mark) = mark::parse(&line) else {
            eprintln!("{line}");
            continue;
        };
        let now = counters.read()?;
        match mark? {
            Mark::Begin { name, length } => {
                progress.at(&name);
                begun.push((name, length, now));
            }
            Mark::End => {
                let [(_, short, first), (name, long, second)] = &begun[..] else {
                    bail!("an operation has two lengths")
                };
                let times = long
                    .checked_sub(*short)
                    .filter(|times| *times > 0)
                    .context("the second is the longer")?;
                let (once, thrice) = (second.map2(*first, |b, a| b - a), now.map2(*second, |b, a| b - a));
                let cost = thrice.map2(once, |long, short| (long - short) / times as f64);
                match &mut costs {
                    Some((of, costs)) if of == name => costs.push(cost),
                    _ => write_cost(costs.replace((name.clone(), vec![cost])))?,
                }
                begun.clear();
            }
            Mark::Counted { name, known, counted } => {
                progress.at(&name);
                write(&Line::Counted { name, known, counted })?;
            }
            Mark::NotRun { name, reason } => write(&Line::NotRun { name, reason })?,
        }
        input.write_all(b"\n")?;
        input.flush()?;
    }
    write_cost(costs)
}

fn write_cost(costs: Option<(String, Vec<Cost>)>) -> Result<()> {
    let Some((name, costs)) = costs else { return Ok(()) };
    let median = |of: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let cost = Cost {
        user: median(|cost| cost.user),
        kernel: median(|cost| cost.kernel),
        total: median(|cost| cost.total),
        exits: median(|cost| cost.exits),
        user_exits: median(|cost| cost.user_exits),
    };
    write(&Line::Cost { name, cost })
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
