//! perfex's own behaviour: exit statuses, messages, output.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::case::{Case, Evidence, Setting, Test, no_copies, nothing_asked};

pub(crate) const CASE: Case = Case {
    name: "perfex",
    copies: no_copies,
    limit: Duration::from_secs(60),
    guest,
    answer: nothing_asked,
    tests,
};

/// A command line, the status it is to end with, and what is to be in its output.
struct Expected {
    name: &'static str,
    line: &'static str,
    status: i32,
    output: &'static [&'static str],
}

const COUNTED: &str = "event 0x004100C0\t";

const fn expected(
    name: &'static str,
    line: &'static str,
    status: i32,
    output: &'static [&'static str],
) -> Expected {
    Expected { name, line, status, output }
}

/// None of these counts events that it does not print: the host's totals are compared with what was printed.
const EXPECTED: [Expected; 26] = [
    expected("true", "perfex -e 0x004100C0 true", 0, &["tsc\t\t\t", COUNTED]),
    expected("false", "perfex -e 0x004100C0 false", 1, &[COUNTED]),
    expected("status-77", "perfex -e 0x004100C0 sh -c 'exit 77'", 77, &[COUNTED]),
    expected("killed", "perfex -e 0x004100C0 sh -c 'kill -9 $$'", 1, &[COUNTED, "killed by signal 9"]),
    expected("bare-numbers", "perfex -e 76 true", 1, &["write 0x76", "vperfctr_control", "enable bit"]),
    expected(
        "any-counter",
        "perfex -e 0x004100C0@3 -e 0x004100C2@1 true",
        0,
        &[COUNTED, "event 0x004100C2\t"],
    ),
    expected("output-file", "perfex -o /tmp/counts -e 0x004100C0 true && cat /tmp/counts", 0, &[COUNTED]),
    expected("output-nowhere", "perfex -o /nowhere/counts true", 1, &["/nowhere/counts"]),
    expected("no-such-file", "perfex /nowhere/command", 1, &["/nowhere/command", "No such file"]),
    expected("not-in-path", "perfex no-such-command", 1, &["no-such-command", "not found"]),
    expected("not-executable", "perfex /etc", 1, &["/etc", "ermission denied"]),
    expected("no-command", "perfex -e 0x004100C0", 1, &["command missing"]),
    expected("no-event", "perfex -e zz true", 1, &["'zz'"]),
    expected("reserved-bit", "perfex -e 0x006100C0 true", 1, &["vperfctr_control", "reserved bit"]),
    expected(
        "five-counters",
        "perfex -e 0x4100C0 -e 0x4100C0 -e 0x4100C0 -e 0x4100C0 -e 0x4100C0 true",
        1,
        &["5 events asked for, and this AMD", "has 4 counters"],
    ),
    expected(
        "twice-one-counter",
        "perfex -e 0x4100C0@2 -e 0x4100C2@2 true",
        1,
        &["do not fit", "counter 2 can"],
    ),
    expected("no-such-counter", "perfex -e 0x4100C0@4 true", 1, &["vperfctr_control", "out of range"]),
    expected("name-without-counter", "perfex -e cycles:u@4 true", 1, &["counter 4 cannot", "0, 1, 2, 3"]),
    expected(
        "no-such-name",
        "perfex -e instruction true",
        1,
        &["'instruction'", "instructions", "perfex -l"],
    ),
    expected("no-such-modifier", "perfex -e cycles:x true", 1, &["unknown modifier 'x'"]),
    expected("complete-raw-code", "perfex -e r4100c0 true", 1, &["0x410000", "0x004100C0"]),
    expected("process-and-command", "perfex -p 1 true", 1, &["exclude one another"]),
    expected("no-runs", "perfex -r 0 true", 1, &["--repeat"]),
    expected("info", "perfex -i", 0, &["abi_version\t\t0x06000500", "(AMD ", "rdtsc", "cpu_nrctrs\t\t4"]),
    expected("long-list", "perfex -L", 0, &["RETIRED_INSTRUCTIONS:0xC0:0xF:0x0:"]),
    expected("help", "perfex -h", 0, &["evntsel[/escr][@pmc]"]),
];

fn guest(_: &Setting) -> String {
    EXPECTED
        .iter()
        .map(|Expected { name, line, .. }| format!("echo '@ {name}'\n{line}\necho \"@ ended with $?\"\n"))
        .collect()
}

fn tests() -> Vec<Test> {
    EXPECTED
        .iter()
        .map(|expected| Test {
            name: expected.name.to_owned(),
            check: Box::new(|evidence| check(evidence, expected)),
        })
        .collect()
}

fn check(evidence: &Evidence, Expected { name, line, status, output }: &Expected) -> Result<()> {
    let begin = format!("@ {name}\n");
    let (_, rest) = evidence.output.split_once(&begin).with_context(|| format!("'{line}' did not run"))?;
    let (seen, rest) = rest.split_once("@ ended with ").with_context(|| format!("'{line}' did not end"))?;
    let ended = rest.lines().next().unwrap_or_default();
    ensure!(ended == status.to_string(), "'{line}' ended with {ended}, expected {status}:\n{seen}");
    for text in *output {
        ensure!(seen.contains(text), "'{line}' does not say {text:?}:\n{seen}");
    }
    Ok(())
}
