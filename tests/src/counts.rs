//! Reading what perfex prints.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// The counts of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Time-stamp cycles.
    pub tsc: u64,
    /// Event select and count, in the order of the command line.
    pub events: Vec<(u32, u64)>,
}

impl Counts {
    /// The count of an event; the first, if it was counted twice.
    pub fn of(&self, evntsel: u32) -> Result<u64> {
        self.events
            .iter()
            .find(|(event, _)| *event == evntsel)
            .map(|&(_, count)| count)
            .with_context(|| format!("no count of event {evntsel:#010x} in {self:?}"))
    }
}

/// All counts in a text, in order. Other lines are skipped; each `tsc` line begins a new set.
pub fn parse(text: &str) -> Result<Vec<Counts>> {
    let mut all: Vec<Counts> = Vec::new();
    for line in text.lines() {
        if let Some(count) = line.strip_prefix("tsc\t\t\t") {
            all.push(Counts { tsc: number(line, count)?, events: Vec::new() });
        } else if let Some((event, count)) =
            line.strip_prefix("event 0x").and_then(|rest| rest.split_once('\t'))
        {
            let event =
                u32::from_str_radix(event, 16).with_context(|| format!("no event select in '{line}'"))?;
            let last = all.last_mut().with_context(|| format!("'{line}' before any tsc line"))?;
            last.events.push((event, number(line, count)?));
        }
    }
    Ok(all)
}

/// The count at the beginning of `field`; the name of the event may follow it.
fn number(line: &str, field: &str) -> Result<u64> {
    let count = field.trim_start().split("  ").next().unwrap_or_default();
    let width = field.len() - field.trim_start().len() + count.len();
    ensure!(width >= 19, "'{line}' is not in perfex's format: the count's field is too narrow");
    count.parse().with_context(|| format!("no count in '{line}'"))
}

/// Sums by event.
pub fn totals(all: &[Counts]) -> BTreeMap<u32, u64> {
    let mut totals = BTreeMap::new();
    for &(event, count) in all.iter().flat_map(|counts| &counts.events) {
        *totals.entry(event).or_default() += count;
    }
    totals
}
