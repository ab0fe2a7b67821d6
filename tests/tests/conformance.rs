//! The tables of what perfctr's documents promise, each row with the tests that hold it: those tests exist.
//!
//! A test is named in one of these ways:
//!
//! * `control-preserve`: a check of `pmctest`;
//! * `vpmu/tests/msr_families.rs::p5::two_counters_share_cesr`: a Rust test, with its file and its module, if that is not
//!   called `tests`;
//! * `tests/lab/module/module.c::switches`: what a program with a list of its own calls a test;
//! * `vpmu/abi/src/layout.rs`: a file with assertions for the compiler.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const PMCTEST: &str = include_str!("../guests/pmctest/CONFORMANCE.md");
const LOW_LEVEL: &str = include_str!("../../vpmu/CONFORMANCE.md");

/// A row: a sentence, what holds it, and what else its table says.
#[derive(Debug)]
struct Row {
    sentence: &'static str,
    held: &'static str,
    more: Vec<&'static str>,
}

impl Row {
    /// The tests' names; none for what no test can hold.
    fn tests(&self) -> Vec<&'static str> {
        if self.held.starts_with("elsewhere: ") {
            return Vec::new();
        }
        self.held
            .split(", ")
            .map(|test| unquoted(test).unwrap_or_else(|| panic!("{test}: {self:?}")))
            .collect()
    }
}

fn unquoted(text: &str) -> Option<&str> {
    text.strip_prefix('`')?.strip_suffix('`').filter(|text| !text.contains('`'))
}

fn rows(table: &'static str) -> Vec<Row> {
    let row = |line: &'static str| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        Some(Row { sentence: cells.next()?, held: cells.next()?, more: cells.collect() })
    };
    table.lines().filter_map(row).filter(|row| row.sentence != "sentence").collect()
}

/// The names that `pmctest` knows its checks by.
fn checks() -> Vec<String> {
    let listed = Command::new(env!("CARGO_BIN_EXE_pmctest")).arg("--list").output().expect("pmctest starts");
    String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect()
}

/// The tests in a file of Rust, as rustfmt writes it.
fn tests_in(source: &str) -> BTreeSet<String> {
    let (mut modules, mut found, mut marked) = (Vec::new(), BTreeSet::new(), false);
    for line in source.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if text == "}" {
            modules.retain(|(begin, _)| *begin < indent);
        } else if let Some(name) = text.strip_prefix("mod ").and_then(|name| name.strip_suffix(" {")) {
            modules.push((indent, name));
        } else if text == "#[test]" {
            marked = true;
        } else if let Some((name, _)) = text.strip_prefix("fn ").and_then(|rest| rest.split_once('('))
            && std::mem::take(&mut marked)
        {
            let path = modules.iter().map(|(_, module)| *module).filter(|module| *module != "tests");
            found.insert(path.chain([name]).collect::<Vec<_>>().join("::"));
        }
    }
    found
}

fn source(file: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(repository.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Whether there is a test of this name, which is that of a file or begins with one.
fn is_in_its_file(test: &str) -> bool {
    let Some((file, name)) = test.split_once("::") else {
        let source = source(test);
        return source.contains("static_assert(") || source.contains("const _: () =");
    };
    let source = source(file);
    let tests = tests_in(&source);
    // Where the compiler collects none, a list names them.
    if tests.is_empty() { source.contains(&format!("\"{name}\"")) } else { tests.contains(name) }
}

#[test]
fn every_sentence_is_held_by_tests_that_exist() {
    let checks = checks();
    for (table, least) in [(PMCTEST, 70), (LOW_LEVEL, 100)] {
        let rows = rows(table);
        assert!(rows.len() > least, "the tables are not found: {} rows", rows.len());
        for row in rows {
            for test in row.tests() {
                let is_check = checks.iter().any(|check| check == test);
                assert!(is_check || test.contains('/') && is_in_its_file(test), "no test {test}: {row:?}");
            }
        }
    }
}

#[test]
fn every_sentence_stands_once() {
    for table in [PMCTEST, LOW_LEVEL] {
        let mut sentences = BTreeSet::new();
        for row in rows(table) {
            assert!(sentences.insert(row.sentence), "twice: '{}'", row.sentence);
        }
    }
}

/// "change -> `test` fails": a test of this row does. A change of what the compiler asserts does not compile.
#[test]
fn every_mutation_names_a_test_of_its_row() {
    for row in rows(LOW_LEVEL) {
        let (tests, [mutation]) = (row.tests(), &row.more[..]) else { panic!("not three columns: {row:?}") };
        if tests.is_empty() {
            assert_eq!(*mutation, "-", "{row:?}");
            continue;
        }
        let (_, outcome) = mutation.rsplit_once(" -> ").unwrap_or_else(|| panic!("no outcome: {row:?}"));
        let fails = |test: &str| {
            let name = test.rsplit("::").next().unwrap_or(test);
            outcome == format!("`{name}` fails") || outcome == "does not compile" && !test.contains("::")
        };
        assert!(tests.iter().any(|test| fails(test)), "none of its tests fails: {row:?}");
    }
}

#[test]
fn no_two_checks_have_one_name() {
    let checks = checks();
    assert!(!checks.is_empty());
    assert_eq!(checks.iter().collect::<BTreeSet<_>>().len(), checks.len());
}

#[test]
fn tests_are_found_in_their_modules() {
    let source = "#[test]\nfn outside() {\n}\nmod p5 {\n    #[test]\n    fn inside(x: u8) {\n    }\n    fn none() {\n    }\n}\n\
         mod tests {\n    #[test]\n    #[ignore]\n    fn of_tests() {\n    }\n}\n";
    assert_eq!(tests_in(source).into_iter().collect::<Vec<_>>(), ["of_tests", "outside", "p5::inside"]);
}
