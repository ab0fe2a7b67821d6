//! What a vCPU has counted, by guest event.

use serde::{Deserialize, Serialize};

use crate::families::select::Select;
use crate::host::pmu::HostEvent;

/// Distinct events that get a row of their own.
const MAX_ROWS: usize = 256;

/// Totals by event select, bounded: a guest that runs through all encodings fills the table, and what comes after
/// is summed in one row.
#[derive(Debug)]
pub(crate) struct Totals {
    rows: Vec<Row>,
    others: u64,
    tsc: u64,
}

#[derive(Debug)]
struct Row {
    select: Select,
    event: HostEvent,
    total: u64,
}

/// What one event select counted on this vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTotal {
    /// What the guest's counter is set to count.
    #[serde(flatten)]
    pub select: Select,
    /// The sum over all states and intervals. Two counters of one state with this event count twice.
    pub total: u64,
    /// Whether a host counter is loaded with it and counts, now.
    pub loaded: bool,
}

/// Names a row; stays valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowIndex(u16);

impl RowIndex {
    /// The row of events that have none.
    pub(crate) const OTHERS: Self = Self(u16::MAX);
}

impl Totals {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), others: 0, tsc: 0 }
    }

    /// The row of `select`, made if there is room. A search: not for the hot path.
    pub(crate) fn row(&mut self, select: Select, event: HostEvent) -> RowIndex {
        if let Some(index) = self.rows.iter().position(|row| row.select == select) {
            return RowIndex(index as u16);
        }
        if self.rows.len() == MAX_ROWS {
            return RowIndex::OTHERS;
        }
        self.rows.push(Row { select, event, total: 0 });
        RowIndex((self.rows.len() - 1) as u16)
    }

    pub(crate) fn add(&mut self, row: RowIndex, count: u64) {
        let total = match self.rows.get_mut(usize::from(row.0)) {
            Some(row) => &mut row.total,
            None => &mut self.others,
        };
        *total = total.wrapping_add(count);
    }

    pub(crate) fn add_tsc(&mut self, cycles: u64) {
        self.tsc = self.tsc.wrapping_add(cycles);
    }

    /// TSC cycles of the states that sample it.
    pub(crate) fn tsc(&self) -> u64 {
        self.tsc
    }

    /// The rows, with `running(row)` added to each, and the sum of the others.
    pub(crate) fn report(
        &self,
        running: impl Fn(RowIndex) -> u64,
        mut loaded: impl FnMut(HostEvent) -> bool,
    ) -> (Vec<EventTotal>, u64) {
        let rows = self.rows.iter().enumerate().map(|(index, row)| EventTotal {
            select: row.select,
            total: row.total.wrapping_add(running(RowIndex(index as u16))),
            loaded: loaded(row.event),
        });
        (rows.collect(), self.others.wrapping_add(running(RowIndex::OTHERS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_last_row_nothing_is_lost() {
        let mut totals = Totals::new();
        let event = HostEvent { config: 0, usr: true, os: true };
        for evntsel in 0..300 {
            let row = totals.row(Select::general(evntsel), event);
            totals.add(row, 2);
            assert_eq!(totals.row(Select::general(evntsel), event), row);
        }
        let (rows, others) = totals.report(|row| u64::from(row == RowIndex::OTHERS), |_| false);
        assert_eq!(rows.len(), 256);
        assert!(rows.iter().all(|row| row.total == 2));
        assert_eq!(others, 2 * 44 + 1);
    }
}
