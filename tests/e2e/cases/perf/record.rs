//! `perf record -c PERIOD`: as many samples as the program's exact count has periods, each taken in its loop. None is
//! lost, none is taken twice, and what remains of a period at a switch or a migration is not forgotten.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::printed::{self, counts, stat};
use super::programs;
use crate::case::{Case, Evidence, Setting, nothing_asked, single};

pub(crate) const CASE: Case = Case {
    name: "record",
    copies: programs::perf,
    limit: Duration::from_secs(180),
    guest,
    answer: nothing_asked,
    tests: || single(host),
};

/// Events with their periods. Whenever one event overflows the other has more than 20 rounds of the loop left, for Linux's
/// perf may lose a sample where one event is left: it then writes -2 (`x86_perf_event_set_period`), and when the task is
/// scheduled out after one event more, nothing is left and the overflow is not noticed. On a busy machine that happens now and
/// then. Overflows that come together are for `pmctest` and the bare guests.
const PERIODS: [(&str, u64); 2] = [("instructions", 20_000), ("branches", 7_939)];
const ITERATIONS: u64 = 1_000_000;
/// Moves to another vCPU.
const ROUNDS: u64 = 10;
/// Code of the loop: 12 bytes with the longest encoding of each instruction.
const LOOP: u64 = 16;

/// One event that goes along with the program: perf else has one on each CPU, and each begins periods of its own.
fn guest(_: &Setting) -> String {
    let program = format!("spin {ITERATIONS:012} --migrate {ROUNDS}");
    let events = PERIODS.map(|(event, _)| format!("{event}:u"));
    let mut script = stat(&events.each_ref().map(String::as_str), "", &program);
    let events = PERIODS.map(|(event, period)| format!("{event}/period={period},name={event}/u")).join(",");
    script += &format!("\nperf record -q --per-thread -o /tmp/samples -e {events} {program}\n");
    // Without symbols: all that is looked at is where samples were taken.
    script += "perf script -i /tmp/samples -F event,ip\nrm /tmp/samples\n";
    script
}

fn host(evidence: &Evidence) -> Result<()> {
    let counts = counts(&evidence.output)?;
    let [total] = &counts[..] else { anyhow::bail!("{} sets of counts, expected 1", counts.len()) };
    let samples = samples(&evidence.output)?;
    for (event, period) in PERIODS {
        let total = printed::of(total, &format!("{event}:u"))?;
        let taken = samples.get(event).map_or(&[][..], Vec::as_slice);
        let due = total / period;
        ensure!(
            taken.len() as u64 == due,
            "{event}: {} samples of {total} with period {period}, expected exactly {due}",
            taken.len()
        );
        let (first, last) = (taken.iter().min().context("none")?, taken.iter().max().context("none")?);
        ensure!(last - first < LOOP, "{event}: samples at {first:#x} and {last:#x}, not all in one loop");
    }
    Ok(())
}

/// Addresses by event, from lines `event: address`.
fn samples(text: &str) -> Result<BTreeMap<&str, Vec<u64>>> {
    let mut samples: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(event), Some(address), None) = (words.next(), words.next(), words.next()) else { continue };
        let Some((event, _)) =
            event.strip_suffix(':').and_then(|event| PERIODS.iter().find(|(name, _)| *name == event))
        else {
            continue;
        };
        let address = u64::from_str_radix(address, 16).with_context(|| format!("no address in '{line}'"))?;
        samples.entry(event).or_default().push(address);
    }
    Ok(samples)
}
