//! The checks of `pmctest`, each a test of its own.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::case::{Case, Evidence, Setting, Test, no_copies, nothing_asked};
use crate::perfvisor::tail;

pub(crate) const CASE: Case = Case {
    name: "pmctest",
    copies: no_copies,
    limit: Duration::from_secs(800),
    guest,
    answer: nothing_asked,
    tests,
};

fn guest(setting: &Setting) -> String {
    command(setting, &[])
}

/// Runs `pmctest` with these words. Its environment names the source that counts the guest.
pub(crate) fn command(setting: &Setting, words: &[&str]) -> String {
    format!("PMCTEST_SOURCE={} pmctest {}", setting.source, words.join(" "))
}

/// The names come from the program itself, which this machine runs as well as the guest.
fn tests() -> Vec<Test> {
    tests_of(|_| true)
}

pub(crate) fn tests_of(wanted: impl Fn(&str) -> bool) -> Vec<Test> {
    let mut tests = vec![Test { name: "status".to_owned(), check: Box::new(status) }];
    for name in names().into_iter().filter(|name| wanted(name)) {
        let own = name.clone();
        tests.push(Test { name, check: Box::new(move |evidence| check(evidence, &own)) });
    }
    tests
}

fn names() -> Vec<String> {
    listed(&["--list"]).lines().map(str::to_owned).collect()
}

fn listed(arguments: &[&str]) -> String {
    let listed = Command::new(env!("CARGO_BIN_EXE_pmctest")).args(arguments).output();
    listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// The checks that are not run in such a guest, and why.
pub(crate) fn not_run(setting: Setting) -> BTreeMap<String, String> {
    let low_level = if setting.source == "kvm" { "registers" } else { "pv" };
    let vcpus = setting.vcpus.to_string();
    let pair = |line: &str| line.split_once(": ").map(|(name, reason)| (name.to_owned(), reason.to_owned()));
    listed(&["--not-run", low_level, &vcpus]).lines().filter_map(pair).collect()
}

fn status(evidence: &Evidence) -> Result<()> {
    ensure!(!names().is_empty(), "pmctest --list names no checks");
    // What is no result is a message of one that failed.
    let message = |line: &&str| took(line).is_none();
    let messages: Vec<&str> = evidence.output.lines().filter(message).collect();
    ensure!(evidence.status == 0, "pmctest ended with {}:\n{}", evidence.status, tail(&messages.join("\n")));
    Ok(())
}

pub(super) fn check(evidence: &Evidence, name: &str) -> Result<()> {
    for line in evidence.output.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["ok", ended, ..] if ended == name => return Ok(()),
            ["FAIL", ended, ..] if ended == name => bail!("{line}"),
            _ => {}
        }
    }
    bail!("it did not end")
}

/// Of a line `ok NAME SECONDS s`, the check and how long it took.
pub(crate) fn took(line: &str) -> Option<(&str, Duration)> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["ok", name, seconds, "s"] => Some((name, Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?)),
        _ => None,
    }
}
