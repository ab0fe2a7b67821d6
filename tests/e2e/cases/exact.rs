//! A program of known length, counted by perfex: the difference of two lengths is exact, alone on the machine; with
//! instructions in it that KVM executes in the guest's place, by the sources that see those, and short of them by perf.

use std::time::Duration;

use anyhow::{Result, ensure};
use tests::counts::Counts;
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::workload::INSTRUCTIONS_PER_EMULATED_ROUND;

use super::counted::{PERFEX, differ_exactly};
use crate::case::{Case, Evidence, Setting, no_copies, nothing_asked, single};

pub(crate) const CASE: Case = Case {
    name: "exact",
    copies: no_copies,
    limit: Duration::from_secs(120),
    guest,
    answer: nothing_asked,
    tests: || single(host),
};

/// From shorter than a clock tick to many of them. All with as many digits.
const ITERATIONS: [u64; 4] = [1, 1_000, 2_345_678, 10_000_000];

/// Rounds with an instruction that KVM executes.
const EMULATED: [u64; 2] = [1, 1_001];

/// Events one by one, then both at once, twice: equal runs count equally.
fn guest(_: &Setting) -> String {
    let mut script = String::new();
    for event in [INSTRUCTIONS, BRANCHES] {
        for iterations in ITERATIONS {
            script += &format!("perfex -e {event:#010x} spin {iterations:012}\n");
        }
    }
    for iterations in ITERATIONS.repeat(2) {
        script += &format!("{PERFEX} spin {iterations:012}\n");
    }
    for rounds in EMULATED {
        script += &format!("{PERFEX} spin 1 --cpuid {rounds:04}\n");
    }
    script
}

/// The program's branches are the processor's; of its instructions one in each round is KVM's, which perf does not see.
fn emulated_are_counted(counts: &[Counts], source: &str) -> Result<()> {
    let each = INSTRUCTIONS_PER_EMULATED_ROUND - u64::from(source == "perf");
    let [few, many] = counts else { anyhow::bail!("{} counts with CPUID", counts.len()) };
    for (event, each) in [(INSTRUCTIONS, each), (BRANCHES, 1)] {
        let counted = many.of(event)?.checked_sub(few.of(event)?);
        let known = (EMULATED[1] - EMULATED[0]) * each;
        ensure!(
            counted == Some(known),
            "{event:#x}: {few:?}, {many:?}: not {known} apart with source {source}"
        );
    }
    Ok(())
}

fn host(evidence: &Evidence) -> Result<()> {
    let counts = evidence.counts()?;
    let n = ITERATIONS.len();
    let expected = 4 * n + EMULATED.len();
    ensure!(counts.len() == expected, "{} counts printed, expected {expected}", counts.len());
    ensure!(evidence.status == 0, "the last perfex ended with {}", evidence.status);
    let (counts, emulated) = counts.split_at(4 * n);
    emulated_are_counted(emulated, evidence.setting.source)?;
    let (single, both) = counts.split_at(2 * n);
    let (instructions, branches) = single.split_at(n);
    let (first, second) = both.split_at(n);
    for (i, iterations) in ITERATIONS.into_iter().enumerate() {
        ensure!(counts[i].tsc > 0, "the TSC did not count");
        ensure!(
            first[i].events == second[i].events,
            "{iterations} iterations counted {:?} and then {:?}",
            first[i].events,
            second[i].events
        );
        let joined = [instructions[i].events.as_slice(), branches[i].events.as_slice()].concat();
        ensure!(
            joined == first[i].events,
            "{iterations} iterations: one event at a time {joined:?}, both at once {:?}",
            first[i].events
        );
        differ_exactly((&first[0], ITERATIONS[0]), (&first[i], iterations))?;
    }
    Ok(())
}
