//! Several monitored programs at once, two for each vCPU, switching and migrating, and one beside them that nobody
//! monitors: each count is as exact as alone.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::printed::{counts, stat};
use super::programs;
use super::stat::differ_exactly;
use crate::case::{Case, Evidence, Setting, nothing_asked, single};

pub(crate) const CASE: Case = Case {
    name: "together",
    copies: programs::perf,
    limit: Duration::from_secs(180),
    guest,
    answer: nothing_asked,
    tests: || single(host),
};

const EVENTS: [&str; 2] = ["instructions:u", "branches:u"];

/// Alone, for comparison.
const ALONE: u64 = 1_000;
/// Each of several: all different, so that a count given to the wrong one shows.
const TOGETHER: [u64; 4] = [5_000_000, 6_500_000, 4_777_000, 5_555_000];
/// Moves to another vCPU during each.
const ROUNDS: u64 = 50;

fn spin(iterations: u64) -> String {
    format!("spin {iterations:012} --migrate {ROUNDS}")
}

fn number(setting: &Setting) -> usize {
    (2 * setting.vcpus as usize).min(TOGETHER.len())
}

fn guest(setting: &Setting) -> String {
    let mut script = stat(&EVENTS, "", &spin(ALONE)) + "\nspin --seconds 3600 & bystander=$!\n";
    let together = &TOGETHER[..number(setting)];
    for (i, &iterations) in together.iter().enumerate() {
        let output = format!("-o /tmp/together.{i}");
        script += &format!("{} & pid{i}=$!\n", stat(&EVENTS, &output, &spin(iterations)));
    }
    for i in 0..together.len() {
        script += &format!("wait $pid{i} || echo \"number {i} ended with $?\"\n");
    }
    script += "kill $bystander; wait $bystander\n";
    for i in 0..together.len() {
        script += &format!("cat /tmp/together.{i}\n");
    }
    script
}

fn host(evidence: &Evidence) -> Result<()> {
    let counts = counts(&evidence.output)?;
    let expected = 1 + number(&evidence.setting);
    ensure!(counts.len() == expected, "{} sets of counts, expected {expected}", counts.len());
    for (counts_of_one, iterations) in counts[1..].iter().zip(TOGETHER) {
        differ_exactly((&counts[0], ALONE), (counts_of_one, iterations))?;
    }
    Ok(())
}
