//! Side by side: one operation a row, whatever it is called at the interface that is used; one system a column.

use crate::cost::Side;
use crate::grid::{Cell, Grid};
use crate::results::{Measured, Operation, Results};
use crate::system::System;
use crate::{accuracy, sizes};

/// What a guest counts with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interface {
    /// The guest driver and its calls.
    Perfctr,
    /// The guest kernel's perf, at the registers of its PMU.
    Perf,
    /// Nothing.
    Nothing,
}

/// The same operation: its name in words, at the guest driver, and at perf.
const ROWS: [(&str, Option<&str>, Option<&str>); 23] = [
    ("context switch, nobody counts", Some("switch/nobody"), Some("switch/nobody")),
    ("context switch, 1 counter each", Some("switch/perfctr-1"), Some("switch/perf-1")),
    ("context switch, 2 counters each", Some("switch/perfctr-2"), Some("switch/perf-2")),
    ("context switch, 4 counters each", Some("switch/perfctr-4"), Some("switch/perf-4")),
    ("context switch, nobody counts, 63 idle machines beside", Some("switch/nobody@crowd"), None),
    ("context switch, 1 counter each, 63 idle machines beside", Some("switch/perfctr-1@crowd"), None),
    ("context switch, 4 counters each, 63 idle machines beside", Some("switch/perfctr-4@crowd"), None),
    ("context switch, 1 interrupting counter each", Some("switch/perfctr-i-mode-1"), None),
    ("context switch, 2 interrupting counters each", Some("switch/perfctr-i-mode-2"), None),
    ("context switch, 4 interrupting counters each", Some("switch/perfctr-i-mode-4"), None),
    ("read 1 counter by a call", Some("perfctr/read-call-1"), Some("perf/read-1")),
    ("read 4 counters by a call", Some("perfctr/read-call-4"), Some("perf/read-4")),
    ("read 1 counter, the cheapest way", Some("perfctr/read-own-1"), Some("perf/read-page-1")),
    ("read 1 counter of 4, the cheapest way", Some("perfctr/read-own-4"), Some("perf/read-page-4")),
    ("the sums of the last switch, from the page", Some("perfctr/read-page"), None),
    ("set 1 counter anew", Some("perfctr/control-1"), Some("perf/disable-and-enable")),
    ("set 4 counters anew", Some("perfctr/control-4"), None),
    ("begin and end counting", Some("perfctr/create-control-unlink"), Some("perf/open-and-close")),
    ("run a program that ends at once, nobody counts", Some("run/nobody"), Some("run/nobody")),
    ("the same by perfex, or as perf stat does it", Some("run/perfctr-perfex"), Some("run/perf-stat")),
    ("a loop of 100,000 instructions, nobody counts", Some("period/nobody"), Some("period/nobody")),
    ("the same, overflow to signal and back", Some("perfctr/overflow-to-signal"), None),
    ("the same, overflow to sample", Some("perfctr/overflow-to-sample"), Some("perf/overflow-to-sample")),
];

/// One access to a register of the guest's PMU; all include the device through which they are made.
const REGISTERS: [(&str, &str); 6] = [
    ("no register of the PMU", "msr/nothing"),
    ("event select, same value", "msr/evntsel-same"),
    ("event select, enable or disable", "msr/evntsel-toggle"),
    ("event select, another event", "msr/evntsel-other"),
    ("write a counter", "msr/counter-write"),
    ("read a counter", "msr/counter-read"),
];

/// A program at work, by what is added to it.
const WORKING: [(&str, &str); 7] = [
    ("1 counter, 2 switches each 200,000 instructions", "work/*-1"),
    ("2 counters", "work/*-2"),
    ("4 counters", "work/*-4"),
    ("1 counter, 2 vCPUs at once", "work/*-1@2-vcpus"),
    ("4 counters, 2 vCPUs", "work/*-4@2-vcpus"),
    ("1 counter, 4 vCPUs on 2 processors", "work/*-1@4-vcpus"),
    ("4 counters, 4 vCPUs on 2 processors", "work/*-4@4-vcpus"),
];
const SAMPLED: [(&str, &str); 3] = [
    ("a sample each 10,000,000 instructions", "sampled/*-each-10000000"),
    ("each 1,000,000", "sampled/*-each-1000000"),
    ("each 100,000", "sampled/*-each-100000"),
];
const OVERHEAD: &str = "Against the same program without counters in the same guest. With more vCPUs than one each has a pair of threads at work, all at
once. A sample each 100,000 instructions is what nobody takes; it is a sample's cost again.";

/// The columns: every system that was measured, by each interface it has.
fn columns(results: &Results) -> Vec<(System, Interface, String)> {
    let mut columns = Vec::new();
    for system in results.systems.iter().map(|measured| measured.system) {
        let title = system.title();
        match system {
            System::Qemu => columns.push((system, Interface::Perf, format!("perf on {title}"))),
            System::None => columns.push((system, Interface::Nothing, title.to_owned())),
            _ => {
                columns.push((system, Interface::Perfctr, format!("perfctr on {title}")));
                columns.push((system, Interface::Perf, format!("perf on {title}")));
            }
        }
    }
    columns
}

type Value = fn(&Operation) -> Option<f64>;

/// All tables of these results.
pub(crate) fn grids(results: &Results) -> Vec<Grid> {
    let columns = columns(results);
    let operations = |title, digits, side, value| operations(results, &columns, title, digits, side, value);
    let mut grids = vec![
        operations("Instructions of the host, per operation", 0, Side::Host, Operation::host_instructions),
        operations("Instructions of the guest, per operation", 0, Side::Guest, Operation::guest_instructions),
        operations("Exits, per operation", 2, Side::Host, Operation::exits),
        operations("Exits to the VMM, per operation", 2, Side::Host, Operation::user_exits),
        registers(results, "instructions of the host, per access", 0, Operation::host_instructions),
        registers(results, "exits, per access", 2, Operation::exits),
    ];
    grids.push(overhead(results, &columns));
    grids.extend(results.systems.iter().map(accuracy::known));
    grids.extend(results.systems.iter().map(accuracy::kernel));
    grids.extend(results.systems.iter().map(accuracy::nothing));
    grids.extend(sizes::starts(&results.starts));
    grids.extend(sizes::scale(results));
    grids.into_iter().map(Grid::trimmed).filter(|grid| !grid.rows.is_empty()).collect()
}

/// One row for each operation.
fn operations(
    results: &Results,
    columns: &[(System, Interface, String)],
    title: &str,
    digits: usize,
    side: Side,
    value: Value,
) -> Grid {
    let row = |(name, perfctr, perf): &(&str, Option<&str>, Option<&str>)| {
        let values = columns.iter().map(|(system, interface, _)| {
            let operation = match interface {
                Interface::Perfctr => *perfctr,
                Interface::Perf => *perf,
                Interface::Nothing => perfctr.filter(|name| name.ends_with("/nobody")),
            };
            cell(results.measured(*system), operation, side, value)
        });
        ((*name).to_owned(), values.collect())
    };
    Grid {
        title: title.to_owned(),
        columns: columns.iter().map(|(_, _, title)| title.clone()).collect(),
        rows: ROWS.iter().map(row).collect(),
        digits,
        signed: false,
        note: "",
    }
}

/// One row for each access to a register.
fn registers(results: &Results, what: &str, digits: usize, value: Value) -> Grid {
    let row = |(name, operation): &(&str, &str)| {
        let measured = results.systems.iter();
        let values = measured.map(|measured| cell(Some(measured), Some(operation), Side::Host, value));
        ((*name).to_owned(), values.collect())
    };
    Grid {
        title: format!("Registers of the guest's PMU: {what}"),
        columns: results.systems.iter().map(|measured| measured.system.title().to_owned()).collect(),
        rows: REGISTERS.iter().map(row).collect(),
        digits,
        signed: false,
        note: "",
    }
}

fn cell(measured: Option<&Measured>, operation: Option<&str>, side: Side, value: Value) -> Cell {
    let (Some(measured), Some(name)) = (measured, operation) else { return Cell::Nothing };
    let operation = measured.of(name);
    let cost = operation.and_then(|operation| operation.cost(side));
    let uncounted = || cost.map(|_| "no counter of the host was left to count it by".to_owned());
    Cell::or(operation.and_then(value), measured.reason(name).or_else(uncounted))
}

/// What counters add to a program at work, on both sides.
fn overhead(results: &Results, columns: &[(System, Interface, String)]) -> Grid {
    let all = |system, name: &str| {
        let operation = results.of(system, name)?;
        Some(operation.host_instructions()? + operation.guest_instructions()?)
    };
    let of =
        |(system, interface, _): &(System, Interface, String), perfctr: &str, perf: &str, nobody: &str| {
            let name = match interface {
                Interface::Perfctr => perfctr,
                Interface::Perf => perf,
                Interface::Nothing => return Cell::Nothing,
            };
            let percent = || Some((all(*system, name)? / all(*system, nobody)? - 1.0) * 100.0);
            let reason = |name| results.measured(*system).and_then(|measured| measured.reason(name));
            Cell::or(percent(), reason(name).or_else(|| reason(nobody)))
        };
    let row = |(title, name): &(&str, &str)| {
        let (first, setting) =
            name.split_once('@').map_or((*name, ""), |(first, _)| (first, &name[first.len()..]));
        let group = first.split('/').next().unwrap_or_default();
        let nobody = format!("{group}/nobody{setting}");
        let values = columns
            .iter()
            .map(|column| of(column, &name.replace('*', "perfctr"), &name.replace('*', "perf"), &nobody));
        ((*title).to_owned(), values.collect())
    };
    Grid {
        title: "Overhead on a program at work, per cent of the instructions of guest and host".to_owned(),
        columns: columns.iter().map(|(_, _, title)| title.clone()).collect(),
        rows: WORKING.iter().chain(&SAMPLED).map(row).collect(),
        digits: 1,
        signed: true,
        note: OVERHEAD,
    }
}

/// For a terminal.
pub(crate) fn text(results: &Results) -> String {
    grids(results).iter().map(Grid::text).collect()
}
