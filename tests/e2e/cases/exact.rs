//! A program of known length, counted by perfex: the difference of two lengths is exact, alone on the machine.

use std::time::Duration;

use anyhow::{Result, ensure};
use tests::event::{BRANCHES, INSTRUCTIONS};

use super::{PERFEX, differ_exactly};
use crate::case::{Case, Evidence, Setting, nothing_asked, single};

pub(crate) const CASE: Case = Case {
    name: "exact",
    limit: Duration::from_secs(120),
    guest,
    answer: nothing_asked,
    tests: || single(host),
};

/// From shorter than a clock tick to many of them. All with as many digits.
const ITERATIONS: [u64; 4] = [1, 1_000, 2_345_678, 10_000_000];

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
    script
}

fn host(evidence: &Evidence) -> Result<()> {
    let counts = evidence.counts()?;
    let n = ITERATIONS.len();
    ensure!(counts.len() == 4 * n, "{} counts printed, expected {}", counts.len(), 4 * n);
    ensure!(evidence.status == 0, "the last perfex ended with {}", evidence.status);
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
