//! What perfex takes and gives beyond the classic: names, JSON, repeated runs. All counts of one program, which must be
//! the same however they are asked for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::counts;
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION};

use crate::answers::{self, Answers};
use crate::case::{Case, Setting, Test, no_copies, nothing_asked};

pub(crate) const CASE: Case = Case {
    name: "perfex-counts",
    copies: no_copies,
    limit: Duration::from_secs(120),
    guest,
    answer: nothing_asked,
    tests,
};

/// The program whose counts are compared.
const SPIN: &str = "spin 000000123456";
/// A child's iterations, and some more.
const CHILD: &str = "000000123456";
const LONGER_CHILD: &str = "000001123456";
const MORE_ITERATIONS: u64 = 1_000_000;
/// Runs of it with `--repeat`.
const REPEAT: usize = 5;

/// A command whose first run fails.
const FAIL_ONCE: &str = "test -e /tmp/once || { touch /tmp/once; exit 5; }";

const NUMBERS: &str = "numbers";
const NAMES: &str = "names";
const RAW: &str = "raw";
const MANUAL: &str = "manual";
const JSON: &str = "json";
const FILE: &str = "file";
const STATUS: &str = "status";
const KILLED: &str = "killed";
const REPEATED: &str = "repeated";
const TABLE: &str = "table";
const FAILING: &str = "failing";
const FAMILIES: [&str; 2] = ["family", "longer-family"];
const ATTACHED: [&str; 2] = ["attached", "longer-attached"];
const AGAIN: &str = "again";

/// Name and command line; spin has the same form of arguments in each.
fn lines() -> Vec<(&'static str, String)> {
    let both = "-e instructions:u,branches:u@3";
    vec![
        (NUMBERS, format!("perfex -e {INSTRUCTIONS:#010x} -e {BRANCHES:#010x} {SPIN}")),
        (NAMES, format!("perfex -e instructions:u -e branches:u {SPIN}")),
        (RAW, format!("perfex -e rc0:u,rC2:u {SPIN}")),
        (MANUAL, format!("perfex -e RETIRED_INSTRUCTIONS:u -e retired_branches:u {SPIN}")),
        (JSON, format!("perfex --format json {both} {SPIN}")),
        (FILE, format!("perfex --format json -o /tmp/counts.json {both} {SPIN} && cat /tmp/counts.json")),
        (STATUS, "perfex --format json -e instructions:u sh -c 'exit 77'".to_owned()),
        (KILLED, "perfex --format json -e instructions:u sh -c 'kill -9 $$' 2>&1 | grep version".to_owned()),
        (REPEATED, format!("perfex --format json -r {REPEAT} {both} {SPIN}")),
        (TABLE, format!("perfex -r {REPEAT} {both} {SPIN}")),
        (FAMILIES[0], family([CHILD, CHILD])),
        (FAMILIES[1], family([CHILD, LONGER_CHILD])),
        (ATTACHED[0], attached(CHILD)),
        (ATTACHED[1], attached(LONGER_CHILD)),
        (AGAIN, again()),
        (FAILING, format!("rm -f /tmp/once; perfex -r 3 --format json sh -c '{FAIL_ONCE}'")),
    ]
}

/// A program with two children. No shell: what one executes depends on whether a child has ended before it waits.
fn family(children: [&str; 2]) -> String {
    let [first, second] = children;
    let spin = format!("{SPIN} --child {first} --child {second}");
    format!("perfex --inherit --format json -e instructions:u,branches:u@3 {spin}")
}

/// Numbers of the system calls in which the program waits for its input, and perfex for the program's end.
const READ: i64 = libc::SYS_read;
const POLL: i64 = libc::SYS_poll;
const PPOLL: i64 = libc::SYS_ppoll;

/// A program that waits in a system call, is counted from there, and goes on to its end.
fn attached(iterations: &str) -> String {
    let perfex = "perfex --format json -o /tmp/attached.json -e instructions:u,branches:u@3 -p $pid";
    format!(
        "rm -f /tmp/go; mkfifo /tmp/go; spin {iterations} --wait < /tmp/go & pid=$!\n\
         exec 5> /tmp/go\n\
         until grep -q '^{READ} ' /proc/$pid/syscall; do sleep 0.05; done\n\
         {perfex} 5>&- & perfex=$!\n\
         until grep -q -e '^{POLL} ' -e '^{PPOLL} ' /proc/$perfex/syscall; do sleep 0.05; done\n\
         exec 5>&-\n\
         wait $perfex; status=$?; wait $pid; cat /tmp/attached.json; (exit $status)"
    )
}

/// A program that is counted twice for a while, and goes on.
fn again() -> String {
    let perfex = "perfex -p $pid --for 0.5 -e instructions:u";
    format!(
        "spin --seconds 3600 & pid=$!\n\
         {perfex} && {perfex} && kill -0 $pid; status=$?\n\
         kill $pid; wait $pid; (exit $status)"
    )
}

fn guest(_: &Setting) -> String {
    answers::script(lines())
}

fn tests() -> Vec<Test> {
    let test = |name: &str, check: fn(&Answers) -> Result<()>| Test {
        name: name.to_owned(),
        check: Box::new(move |evidence| check(&Answers::of(evidence)?)),
    };
    vec![
        test("names-are-the-numbers", names),
        test("json-is-the-text", json),
        test("json-in-a-file", file),
        test("json-has-the-status", statuses),
        test("repeated-runs-are-equal", repeated),
        test("repeat-keeps-a-failure", failing),
        test("children-are-counted-apart", families),
        test("a-running-process-is-counted", running),
        test("and-goes-on-afterwards", goes_on),
    ]
}

impl Answers<'_> {
    fn document(&self, name: &str, status: i32) -> Result<Value> {
        let said = self.said(name, status)?;
        let document: Value =
            serde_json::from_str(said).with_context(|| format!("no JSON of {name}: {said}"))?;
        ensure!(document["version"] == 1, "{document}");
        ensure!(document["cpu_name"].as_str().is_some_and(|name| name.starts_with("AMD ")), "{document}");
        Ok(document)
    }

    /// Event selects and counts of a line that printed text.
    fn counts(&self, name: &str) -> Result<Vec<(u32, u64)>> {
        let all = counts::parse(self.said(name, 0)?)?;
        ensure!(all.len() == 1 && all[0].events.len() == 2, "{name} printed {all:?}");
        Ok(all[0].events.clone())
    }
}

fn names(answers: &Answers<'_>) -> Result<()> {
    let numbers = answers.counts(NUMBERS)?;
    for name in [NAMES, RAW, MANUAL] {
        let counts = answers.counts(name)?;
        ensure!(counts == numbers, "{NUMBERS} counted {numbers:?}, {name} {counts:?}");
    }
    let said = answers.said(NAMES, 0)?;
    ensure!(said.contains("  instructions:u\n") && said.contains("  branches:u\n"), "no names in\n{said}");
    Ok(())
}

/// The counts of a run in a document, after a look at everything else in it.
fn run_counts(run: &Value) -> Result<Vec<(u32, u64)>> {
    ensure!(run["exit_status"] == 0 && run["signal"].is_null(), "{run}");
    ensure!(run["tsc"].as_u64().is_some_and(|tsc| tsc > 0), "{run}");
    let events = run["events"].as_array().with_context(|| format!("no events in {run}"))?;
    let names: Vec<&Value> = events.iter().map(|event| &event["name"]).collect();
    ensure!(names == ["instructions:u", "branches:u@3"], "{run}");
    let pmcs: Vec<&Value> = events.iter().map(|event| &event["pmc"]).collect();
    ensure!(pmcs == [0, 3], "{run}");
    events
        .iter()
        .map(|event| {
            let number = |field: &str| event[field].as_u64().with_context(|| format!("no {field} in {run}"));
            Ok((u32::try_from(number("evntsel")?)?, number("count")?))
        })
        .collect()
}

fn json(answers: &Answers<'_>) -> Result<()> {
    let document = answers.document(JSON, 0)?;
    ensure!(document["command"] == serde_json::json!(["spin", "000000123456"]), "{document}");
    ensure!(document["pid"].is_null() && document.get("statistics").is_none(), "{document}");
    let (text, json) = (answers.counts(NUMBERS)?, run_counts(&document["runs"][0])?);
    ensure!(text == json, "the text says {text:?}, the JSON {json:?}");
    Ok(())
}

fn file(answers: &Answers<'_>) -> Result<()> {
    let (text, json) = (answers.counts(NUMBERS)?, run_counts(&answers.document(FILE, 0)?["runs"][0])?);
    ensure!(text == json, "the text says {text:?}, the file {json:?}");
    Ok(())
}

fn statuses(answers: &Answers<'_>) -> Result<()> {
    let run = &answers.document(STATUS, 77)?["runs"][0];
    ensure!(run["exit_status"] == 77 && run["signal"].is_null(), "{run}");
    let run = &answers.document(KILLED, 0)?["runs"][0];
    ensure!(run["exit_status"].is_null() && run["signal"] == 9, "{run}");
    ensure!(run["events"][0]["count"].as_u64().is_some_and(|count| count > 0), "{run}");
    Ok(())
}

/// User-mode counts of a program without a C library do not differ at all; the statistics say so.
fn repeated(answers: &Answers<'_>) -> Result<()> {
    let alone = answers.counts(NUMBERS)?;
    let document = answers.document(REPEATED, 0)?;
    let runs = document["runs"].as_array().with_context(|| format!("{document}"))?;
    ensure!(runs.len() == REPEAT, "{} runs", runs.len());
    for run in runs {
        let counts = run_counts(run)?;
        ensure!(counts == alone, "alone {alone:?}, repeated {counts:?}");
    }
    let table = answers.said(TABLE, 0)?;
    for (i, (evntsel, count)) in alone.into_iter().enumerate() {
        let spread = &document["statistics"]["events"][i];
        ensure!(spread["mean"] == count as f64 && spread["stddev"] == 0.0, "{count}, but {spread}");
        ensure!(spread["min"] == count && spread["max"] == count, "{count}, but {spread}");
        let start = format!("event {evntsel:#010X} ").replacen("0X", "0x", 1);
        let line = table
            .lines()
            .find(|line| line.starts_with(&start))
            .with_context(|| format!("no {start}in\n{table}"))?;
        let words: Vec<&str> = line.split_whitespace().skip(2).take(4).collect();
        let count = count.to_string();
        ensure!(words == [format!("{count}.00").as_str(), "0.00", &count, &count], "{line}");
    }
    Ok(())
}

/// The first status that is not 0, and all runs all the same.
fn failing(answers: &Answers<'_>) -> Result<()> {
    let document = answers.document(FAILING, 5)?;
    let runs = document["runs"].as_array().with_context(|| format!("{document}"))?;
    let ended: Vec<&Value> = runs.iter().map(|run| &run["exit_status"]).collect();
    ensure!(ended == [5, 0, 0], "{ended:?}");
    Ok(())
}

/// A child counts what it executes, to the event, and its parent does not count it.
fn families(answers: &Answers<'_>) -> Result<()> {
    let mut counts = Vec::new();
    for name in FAMILIES {
        let document = answers.document(name, 0)?;
        let events = document["runs"][0]["events"].as_array().with_context(|| format!("{document}"))?;
        let part = |part: &str| -> Result<Vec<u64>> {
            let values = events.iter().map(|event| event[part].as_u64());
            values.collect::<Option<_>>().with_context(|| format!("no {part} in {document}"))
        };
        let (count, own, children) = (part("count")?, part("own")?, part("children")?);
        let sum: Vec<u64> = own.iter().zip(&children).map(|(own, children)| own + children).collect();
        ensure!(count == sum, "{document}");
        counts.push((own, children));
    }
    let [(own, family), (longer_own, longer)] = &counts[..] else { unreachable!("two") };
    ensure!(own == longer_own, "the parent's own: {own:?}, and with a longer child {longer_own:?}");
    for (i, each) in [INSTRUCTIONS_PER_ITERATION, BRANCHES_PER_ITERATION].into_iter().enumerate() {
        let more = longer[i].checked_sub(family[i]);
        ensure!(more == Some(MORE_ITERATIONS * each), "{family:?}, and with more iterations {longer:?}");
    }
    Ok(())
}

/// From where it was attached to its end, to the event, and by the process's thread.
fn running(answers: &Answers<'_>) -> Result<()> {
    let mut counts = Vec::new();
    for name in ATTACHED {
        let document = answers.document(name, 0)?;
        ensure!(document["pid"].as_u64().is_some() && document["command"].is_null(), "{document}");
        let run = &document["runs"][0];
        let events = run["events"].as_array().with_context(|| format!("{document}"))?;
        let counted: Vec<&Value> = events.iter().map(|event| &event["count"]).collect();
        let threads = run["threads"].as_array().with_context(|| format!("no threads in {document}"))?;
        ensure!(threads.len() == 1 && threads[0]["tid"] == document["pid"], "{document}");
        ensure!(threads[0]["counts"] == serde_json::json!(counted), "{document}");
        let numbers: Option<Vec<u64>> = counted.into_iter().map(Value::as_u64).collect();
        counts.push(numbers.with_context(|| format!("no counts in {document}"))?);
    }
    for (i, each) in [INSTRUCTIONS_PER_ITERATION, BRANCHES_PER_ITERATION].into_iter().enumerate() {
        let more = counts[1][i].checked_sub(counts[0][i]);
        ensure!(
            more == Some(MORE_ITERATIONS * each),
            "{:?}, and with more iterations {:?}",
            counts[0],
            counts[1]
        );
    }
    Ok(())
}

fn goes_on(answers: &Answers<'_>) -> Result<()> {
    let printed = counts::parse(answers.said(AGAIN, 0)?)?;
    let counted = printed.iter().map(|counts| counts.of(INSTRUCTIONS)).collect::<Result<Vec<_>>>()?;
    ensure!(counted.len() == 2 && counted.iter().all(|&count| count > MORE_ITERATIONS), "{counted:?}");
    Ok(())
}
