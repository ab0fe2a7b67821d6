//! The long runs of `pmctest`, as short as still makes sense: by hand they go on for as long as wanted.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::pmctest;
use crate::case::{Case, Evidence, Setting, Test, no_copies, nothing_asked};

/// Many threads end their turns after the time is up.
const LIMIT: Duration = Duration::from_secs(400);

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "stress",
        copies: no_copies,
        limit: LIMIT,
        guest: |setting: &Setting| pmctest::command(setting, &["--stress", "15"]),
        answer: nothing_asked,
        tests: || tests(&["stress-exact", "stress-nothing-left", "stress-kernel-log"]),
    },
    Case {
        name: "fuzz",
        copies: no_copies,
        limit: LIMIT,
        guest: |setting: &Setting| pmctest::command(setting, &["--fuzz", "30"]),
        answer: nothing_asked,
        tests: || tests(&["fuzz-unprivileged", "fuzz-nothing-left", "fuzz-kernel-log"]),
    },
    // The guests of all checks count with perf; here is one with the module.
    Case {
        name: "trust",
        copies: no_copies,
        limit: LIMIT,
        guest: |_: &Setting| "pmctest trust".to_owned(),
        answer: nothing_asked,
        tests: || tests(&["trust-page", "trust-overflow", "trust-samples"]),
    },
];

/// One for each line, and one that shows everything, with the seed, if any of them failed.
fn tests(lines: &[&'static str]) -> Vec<Test> {
    let each = |line: &&'static str| {
        let line = *line;
        Test { name: line.to_owned(), check: Box::new(move |evidence| pmctest::check(evidence, line)) }
    };
    let mut tests: Vec<Test> = lines.iter().map(each).collect();
    tests.push(Test { name: String::new(), check: Box::new(status) });
    tests
}

fn status(evidence: &Evidence) -> Result<()> {
    ensure!(evidence.status == 0, "pmctest ended with {}", evidence.status);
    Ok(())
}
