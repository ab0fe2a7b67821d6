//! Reading what perf prints.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// The counts of one `perf stat -x,`, by event.
pub(super) type Counts = BTreeMap<String, u64>;

/// What perf itself writes first into a file.
const START: &str = "# started on";

/// A script for a program and its counts, of which [`counts`] makes one set. `more` options may lead it into a file.
pub(super) fn stat(events: &[&str], more: &str, program: &str) -> String {
    format!("echo '{START}'; perf stat -x, {more} -e {} {program}", events.join(","))
}

/// All counts in a text.
///
/// The fields are count, unit, event, variance where there are several runs, nanoseconds, and the percentage of that time in
/// which the event was on a counter.
pub(super) fn counts(text: &str) -> Result<Vec<Counts>> {
    let mut all: Vec<Counts> = Vec::new();
    for line in text.lines() {
        if line.starts_with(START) {
            all.push(Counts::new());
        }
        let fields: Vec<&str> = line.split(',').collect();
        let [count, _unit, event, rest @ ..] = &fields[..] else { continue };
        let event = *event;
        if !["instructions", "branches", "cycles", "branch-misses"]
            .iter()
            .any(|name| event.split(':').next() == Some(*name))
        {
            continue;
        }
        let rest = match rest {
            [variance, rest @ ..] if variance.ends_with('%') => {
                ensure!(*variance == "0.00%", "the runs differ: {line}");
                rest
            }
            rest => rest,
        };
        let percent = rest.get(1).with_context(|| format!("not a line of perf stat: {line}"))?;
        ensure!(*percent == "100.00", "not on a counter all the time: {line}");
        let count = count.parse().with_context(|| format!("not counted: {line}"))?;
        let last = all.last_mut().with_context(|| format!("'{line}' before any start"))?;
        ensure!(last.insert(event.to_owned(), count).is_none(), "twice in one set: {line}");
    }
    // Those that went into files.
    all.retain(|counts| !counts.is_empty());
    Ok(all)
}

/// One count of a set.
pub(super) fn of(counts: &Counts, event: &str) -> Result<u64> {
    counts.get(event).copied().with_context(|| format!("no count of {event} in {counts:?}"))
}
