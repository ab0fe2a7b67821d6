//! Several counted programs at once, switching and migrating, and one beside them that nobody counts: each count is
//! as exact as alone.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::counted::{PERFEX, differ_exactly};
use crate::case::{Case, Evidence, Setting, no_copies, nothing_asked, single};

pub(crate) const CASE: Case = Case {
    name: "side-by-side",
    copies: no_copies,
    limit: Duration::from_secs(180),
    guest,
    answer: nothing_asked,
    tests: || single(host),
};

/// Alone, for comparison.
const ALONE: u64 = 1_000;
/// Each of several: all different, so that a count given to the wrong one shows. The first as many as there are to
/// be are used, two for each vCPU. Each lasts for many time slices.
const TOGETHER: [u64; 8] =
    [9_000_000, 12_500_000, 7_777_000, 11_111_000, 8_123_000, 10_001_000, 6_600_000, 9_999_000];
/// Moves to another vCPU during each.
const ROUNDS: u64 = 100;

fn number_together(vcpus: u32) -> usize {
    (2 * vcpus as usize).min(TOGETHER.len())
}

fn guest(setting: &Setting) -> String {
    let spin = |iterations: u64| format!("spin {iterations:012} --migrate {ROUNDS}");
    let mut script = format!("{PERFEX} {}\n", spin(ALONE));
    script += "spin --seconds 3600 & bystander=$!\n";
    let together = &TOGETHER[..number_together(setting.vcpus)];
    for (i, &iterations) in together.iter().enumerate() {
        script += &format!("{PERFEX} -o /tmp/together.{i} {} & pid{i}=$!\n", spin(iterations));
    }
    for i in 0..together.len() {
        script += &format!("wait $pid{i} || echo \"number {i} ended with $?\"\n");
    }
    script += "kill $bystander; wait $bystander\n";
    for i in 0..together.len() {
        script += &format!("cat /tmp/together.{i}\n");
    }
    // Alone again: nothing is left of the crowd.
    script + &format!("{PERFEX} {}\n", spin(ALONE))
}

fn host(evidence: &Evidence) -> Result<()> {
    let counts = evidence.counts()?;
    let [alone, together @ .., alone_again] = &counts[..] else { anyhow::bail!("nothing was counted") };
    let expected = number_together(evidence.setting.vcpus);
    ensure!(together.len() == expected, "{} programs counted together, expected {expected}", together.len());
    ensure!(
        alone.events == alone_again.events,
        "alone {:?}, then again {:?}",
        alone.events,
        alone_again.events
    );
    for (counts, iterations) in together.iter().zip(TOGETHER) {
        differ_exactly((alone, ALONE), (counts, iterations))?;
    }
    Ok(())
}
