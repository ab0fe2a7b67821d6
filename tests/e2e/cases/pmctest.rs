//! The checks of `pmctest`, each a test of its own.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::case::{Case, Evidence, Setting, Test, nothing_asked};

pub(crate) const CASE: Case =
    Case { name: "pmctest", limit: Duration::from_secs(400), guest, answer: nothing_asked, tests };

fn guest(_: &Setting) -> String {
    "pmctest".to_owned()
}

/// The names come from the program itself, which this machine runs as well as the guest.
fn tests() -> Vec<Test> {
    tests_of(|_| true)
}

pub(super) fn tests_of(wanted: impl Fn(&str) -> bool) -> Vec<Test> {
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

/// The checks that are not run with this source, and why.
pub(crate) fn not_run(source: &str) -> BTreeMap<String, String> {
    let low_level = if source == "kvm" { "registers" } else { "door" };
    let pair = |line: &str| line.split_once(": ").map(|(name, reason)| (name.to_owned(), reason.to_owned()));
    listed(&["--not-run", low_level]).lines().filter_map(pair).collect()
}

fn status(evidence: &Evidence) -> Result<()> {
    ensure!(!names().is_empty(), "pmctest --list names no checks");
    ensure!(evidence.status == 0, "pmctest ended with {}", evidence.status);
    Ok(())
}

pub(super) fn check(evidence: &Evidence, name: &str) -> Result<()> {
    for line in evidence.output.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["ok", ended] if ended == name => return Ok(()),
            ["FAIL", ended, ..] if ended == name => bail!("{line}"),
            _ => {}
        }
    }
    bail!("it did not end")
}
