//! The kernel is content with its PMU: it complains of no interrupt, no register, and nothing else.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::programs;
use crate::case::{Case, Evidence, Setting, nothing_asked, single};

pub(crate) const CASE: Case = Case {
    name: "messages",
    copies: programs::perf,
    limit: Duration::from_secs(60),
    guest,
    answer: nothing_asked,
    tests: || single(host),
};

/// Beginnings of complaints. That an NMI "took too long to run" is none: in the lab time means nothing.
const COMPLAINTS: [&str; 9] = [
    "Uhhuh. NMI received",
    "Dazed and confused",
    "perf: interrupt took too long",
    "unchecked MSR access",
    "general protection fault",
    "WARNING: CPU",
    "BUG:",
    "Oops:",
    "perfctr: RDPMC faults",
];

fn guest(_: &Setting) -> String {
    "dmesg".to_owned()
}

fn host(evidence: &Evidence) -> Result<()> {
    let complaints: Vec<&str> = evidence
        .output
        .lines()
        .filter(|line| COMPLAINTS.iter().any(|complaint| line.contains(complaint)))
        .collect();
    ensure!(complaints.is_empty(), "the kernel complains:\n{}", complaints.join("\n"));
    // The buffer goes back to the boot: what was complained of is still in it.
    ensure!(evidence.output.contains("Linux version"), "the messages of the boot are gone");
    Ok(())
}
