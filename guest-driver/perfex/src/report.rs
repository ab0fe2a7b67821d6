//! The counts, for people.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use libvperfctr::layout::SumCtrs;

use crate::counted::{Event, Plan, Run};
use crate::statistics::Spread;

/// The classic format: one line for the TSC and one for each counter, and the P4's two registers where they were used.
/// A name that was given follows its count.
pub(crate) fn sums(plan: &Plan, sums: &SumCtrs) -> String {
    let mut text = String::new();
    if plan.tsc_on() {
        let _ = writeln!(text, "tsc\t\t\t{:>19}", sums.tsc);
    }
    for (event, count) in plan.events.iter().zip(sums.pmc) {
        let _ = writeln!(text, "{}\t{count:>19}{}", select(event), name(event));
    }
    text + &pebs(plan)
}

/// Of several runs: mean, standard deviation, smallest and largest.
pub(crate) fn statistics(plan: &Plan, runs: &[Run]) -> String {
    let totals: Vec<SumCtrs> = runs.iter().map(|run| run.counted.total()).collect();
    let title = format!("{} runs", runs.len());
    let mut text = format!("{title:<28}{:>20}{:>18}{:>20}{:>20}\n", "mean", "deviation", "min", "max");
    let mut line = |what: &str, name: &str, value: &dyn Fn(&SumCtrs) -> u64| {
        if let Some(Spread { mean, stddev, min, max }) =
            Spread::of(&totals.iter().map(value).collect::<Vec<_>>())
        {
            let _ = writeln!(text, "{what:<28}{mean:>20.2}{stddev:>18.2}{min:>20}{max:>20}{name}");
        }
    };
    if plan.tsc_on() {
        line("tsc", "", &|sums| sums.tsc);
    }
    for (i, event) in plan.events.iter().enumerate() {
        line(&select(event), &name(event), &|sums| sums.pmc[i]);
    }
    text + &pebs(plan)
}

fn select(event: &Event) -> String {
    let mut text = format!("event 0x{:08X}", event.counter.evntsel);
    if event.counter.escr != 0 {
        let _ = write!(text, "/0x{:08X}", event.counter.escr);
    }
    text
}

fn name(event: &Event) -> String {
    if event.is_named { format!("  {}", event.name) } else { String::new() }
}

fn pebs(plan: &Plan) -> String {
    let p4 = &plan.control.cpu_control.p4;
    [("PEBS_ENABLE", p4.pebs_enable), ("PEBS_MATRIX_VERT", p4.pebs_matrix_vert)]
        .into_iter()
        .filter(|(_, value)| *value != 0)
        .map(|(name, value)| format!("{name} 0x{value:08X}\n"))
        .collect()
}

/// Where the counts go. A file is opened before the command runs, so that it is not run in vain.
pub(crate) enum Output {
    Stderr,
    File(File),
}

impl Output {
    pub(crate) fn open(path: Option<&PathBuf>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::Stderr) };
        File::create(path).map(Self::File).with_context(|| path.display().to_string())
    }

    /// One write, so that the counts of commands running side by side don't mix.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().write_all(text.as_bytes()),
            Self::File(file) => file.write_all(text.as_bytes()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use libvperfctr::{Counter, a_mode};

    use super::*;
    use crate::counted::Counted;

    /// A number and a name.
    pub(crate) fn plan() -> Plan {
        let event = |name: &str, is_named, evntsel, pmc| Event {
            name: name.to_owned(),
            is_named,
            counter: Counter { evntsel, escr: 0, pmc },
        };
        let events =
            vec![event("0x004100C0", false, 0x0041_00C0, 0), event("branches:u", true, 0x0041_00C2, 3)];
        let counters: Vec<Counter> = events.iter().map(|event| event.counter).collect();
        Plan { events, control: a_mode(true, &counters).unwrap() }
    }

    /// A run that ended with this status, as wait(2) has it, and counted 7 branches.
    pub(crate) fn run(status: i32, tsc: u64, instructions: u64) -> Run {
        let mut own = SumCtrs { tsc, ..SumCtrs::default() };
        own.pmc[..2].copy_from_slice(&[instructions, 7]);
        let counted = Counted { own, children: None };
        Run { counted, status: Some(ExitStatus::from_raw(status)), threads: Vec::new() }
    }

    #[test]
    fn the_classic_format() {
        let mut plan = plan();
        plan.events[1].is_named = false;
        plan.events[1].counter = Counter { evntsel: 0xC2, escr: 0x204, pmc: 1 };
        plan.control.cpu_control.p4.pebs_enable = 0x0100_0001;
        let mut counted = run(0, 12, 4_000_000_123).counted.own;
        counted.pmc[1] = u64::MAX >> 1;
        assert_eq!(
            sums(&plan, &counted),
            "tsc\t\t\t                 12\n\
             event 0x004100C0\t         4000000123\n\
             event 0x000000C2/0x00000204\t9223372036854775807\n\
             PEBS_ENABLE 0x01000001\n"
        );
    }

    #[test]
    fn a_name_follows_its_count() {
        let text = sums(&plan(), &run(0, 12, 1).counted.own);
        assert!(text.ends_with("event 0x004100C2\t                  7  branches:u\n"), "{text}");
    }

    #[test]
    fn statistics_are_a_table() {
        let text = statistics(&plan(), &[run(0, 10, 5), run(0, 20, 5), run(0, 30, 5)]);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["3", "runs", "mean", "deviation", "min", "max"]);
        assert_eq!(words[1], ["tsc", "20.00", "10.00", "10", "30"]);
        assert_eq!(words[2], ["event", "0x004100C0", "5.00", "0.00", "5", "5"]);
        assert_eq!(words[3], ["event", "0x004100C2", "7.00", "0.00", "7", "7", "branches:u"]);
    }

    #[test]
    fn nothing_counted_nothing_printed() {
        let plan = Plan { events: Vec::new(), control: a_mode(false, &[]).unwrap() };
        assert_eq!(sums(&plan, &SumCtrs::default()), "");
    }

    #[test]
    fn an_output_that_cannot_be_is_named() {
        let error = Output::open(Some(&PathBuf::from("/nowhere/at/all"))).err().unwrap();
        assert!(format!("{error:#}").contains("/nowhere/at/all: No such file"));
    }
}
