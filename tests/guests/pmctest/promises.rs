//! `CONFORMANCE.md` names checks that exist.

use std::collections::BTreeSet;

use crate::checks;

const TABLE: &str = include_str!("CONFORMANCE.md");

/// Rows of the tables: a sentence and what holds it.
fn rows() -> Vec<(&'static str, &'static str)> {
    let cells = |line: &'static str| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ");
    TABLE.lines().filter_map(cells).filter(|row| *row != ("sentence", "checks")).collect()
}

fn names() -> BTreeSet<&'static str> {
    checks::all().map(|check| check.name).collect()
}

#[test]
fn every_sentence_is_held_by_checks_that_exist() {
    let names = names();
    assert!(rows().len() > 70, "the tables of CONFORMANCE.md are not found: {} rows", rows().len());
    for (sentence, held) in rows() {
        if held.starts_with("elsewhere: ") {
            continue;
        }
        for check in held.split(", ") {
            let name = check.strip_prefix('`').and_then(|check| check.strip_suffix('`'));
            assert!(name.is_some_and(|name| names.contains(name)), "no check {check}, of '{sentence}'");
        }
    }
}

#[test]
fn every_sentence_stands_once() {
    let mut sentences = BTreeSet::new();
    for (sentence, _) in rows() {
        assert!(sentences.insert(sentence), "twice: '{sentence}'");
    }
}

#[test]
fn no_two_checks_have_one_name() {
    assert_eq!(names().len(), checks::all().count());
}
