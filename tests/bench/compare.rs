//! Side by side: one operation a row, whatever it is called at the interface that is used; one system a column.

use crate::results::{Measured, Operation, Results};
use crate::start::{Spent, Start};
use crate::system::System;
use crate::table::number;

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
const ROWS: [(&str, Option<&str>, Option<&str>); 14] = [
    ("context switch, nobody counts", Some("switch/nobody"), Some("switch/nobody")),
    ("context switch, 1 counter each", Some("switch/perfctr-1"), Some("switch/perf-1")),
    ("context switch, 2 counters each", Some("switch/perfctr-2"), Some("switch/perf-2")),
    ("context switch, 4 counters each", Some("switch/perfctr-4"), Some("switch/perf-4")),
    ("context switch, 1 interrupting counter each", Some("switch/perfctr-i-mode-1"), None),
    ("context switch, 4 interrupting counters each", Some("switch/perfctr-i-mode-4"), None),
    ("read 1 counter by a call", Some("perfctr/read-call-1"), Some("perf/read-1")),
    ("read 4 counters by a call", Some("perfctr/read-call-4"), None),
    ("read 1 counter of 4, the cheapest way", Some("perfctr/read-own-4"), None),
    ("set 1 counter anew", Some("perfctr/control-1"), Some("perf/disable-and-enable")),
    ("set 4 counters anew", Some("perfctr/control-4"), None),
    ("begin and end counting", Some("perfctr/create-control-unlink"), Some("perf/open-and-close")),
    ("overflow to signal and back", Some("perfctr/overflow-to-signal"), None),
    ("overflow to sample", Some("perfctr/overflow-to-sample"), Some("perf/overflow-to-sample")),
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

/// A program at work, and the same without counters.
const WORKING: [(&str, &str, &str, &str); 3] = [
    ("1 counter, 2 switches each 200,000 instructions", "work/perfctr-1", "work/perf-1", "work/nobody"),
    ("2 counters", "work/perfctr-2", "work/perf-2", "work/nobody"),
    ("4 counters", "work/perfctr-4", "work/perf-4", "work/nobody"),
];

/// What is counted for its accuracy, and how.
const WORK: [(&str, &str); 7] = [
    ("nothing, between two readings", "nothing"),
    ("loop", "loop"),
    ("page faults", "page-faults"),
    ("system calls", "system-calls"),
    ("repeated string instructions", "rep-strings"),
    ("signals", "signals"),
    ("context switches", "context-switches"),
];
const INTERFACES: [(&str, &str); 8] = [
    ("perfctr, 1 counter", "perfctr"),
    ("perfctr, 4 counters", "perfctr-4"),
    ("perf, 1 counter", "perf"),
    ("perf, 4 counters", "perf-4"),
    ("perfctr, kernel mode", "perfctr-kernel"),
    ("perf, kernel mode", "perf-kernel"),
    ("perfctr, both modes", "perfctr-both"),
    ("perf, both modes", "perf-both"),
];

/// A table of numbers with names.
pub(crate) struct Grid {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<(String, Vec<Option<f64>>)>,
    /// Digits behind the point.
    pub(crate) digits: usize,
    /// Whether less than nothing is something.
    pub(crate) signed: bool,
}

impl Grid {
    /// Without rows and columns that have nothing.
    fn trimmed(mut self) -> Self {
        self.rows.retain(|(_, values)| values.iter().any(Option::is_some));
        for column in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|(_, values)| values[column].is_none()) {
                self.columns.remove(column);
                self.rows.iter_mut().for_each(|(_, values)| {
                    values.remove(column);
                });
            }
        }
        self
    }

    pub(crate) fn number(&self, value: Option<f64>) -> String {
        match value {
            Some(value) if self.signed => format!("{value:.0$}", self.digits),
            value => number(value, self.digits),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n\n{:<46}", self.title, "");
        self.columns.iter().for_each(|column| text += &format!("  {column}"));
        text.push('\n');
        for (name, values) in &self.rows {
            text += &format!("{name:<46}");
            for (value, column) in values.iter().zip(&self.columns) {
                text += &format!("  {:>width$}", self.number(*value), width = column.chars().count());
            }
            text.push('\n');
        }
        text + "\n"
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n| |", self.title);
        self.columns.iter().for_each(|column| text += &format!(" {column} |"));
        text += "\n|---|";
        self.columns.iter().for_each(|_| text += "---:|");
        text.push('\n');
        for (name, values) in &self.rows {
            text += &format!("| {name} |");
            values.iter().for_each(|value| text += &format!(" {} |", self.number(*value)));
            text.push('\n');
        }
        text + "\n"
    }
}

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
    let titles: Vec<String> = columns.iter().map(|(_, _, title)| title.clone()).collect();
    let of_operations = |title: &str, digits, value: Value| Grid {
        title: title.to_owned(),
        columns: titles.clone(),
        rows: ROWS
            .iter()
            .map(|(name, perfctr, perf)| {
                let values = columns.iter().map(|(system, interface, _)| {
                    let operation = match interface {
                        Interface::Perfctr => *perfctr,
                        Interface::Perf => *perf,
                        Interface::Nothing => perfctr.filter(|name| *name == "switch/nobody"),
                    };
                    results.of(*system, operation?).and_then(value)
                });
                ((*name).to_owned(), values.collect())
            })
            .collect(),
        digits,
        signed: false,
    };
    let of_registers = |title: &str, digits, value: Value| Grid {
        title: title.to_owned(),
        columns: results.systems.iter().map(|measured| measured.system.title().to_owned()).collect(),
        rows: REGISTERS
            .iter()
            .map(|(name, operation)| {
                let values = results.systems.iter().map(|measured| measured.of(operation).and_then(value));
                ((*name).to_owned(), values.collect())
            })
            .collect(),
        digits,
        signed: false,
    };
    let mut grids = vec![
        of_operations("Instructions of the host, per operation", 0, Operation::host_instructions),
        of_operations("Instructions of the guest, per operation", 0, Operation::guest_instructions),
        of_operations("Exits, per operation", 2, Operation::exits),
        of_operations("Exits to the VMM, per operation", 2, Operation::user_exits),
        of_registers(
            "Registers of the guest's PMU: instructions of the host, per access",
            0,
            Operation::host_instructions,
        ),
        of_registers("Registers of the guest's PMU: exits, per access", 2, Operation::exits),
    ];
    grids.push(overhead(results, &columns));
    grids.extend(results.systems.iter().map(accuracy));
    grids.extend(starts(&results.starts));
    grids.into_iter().map(Grid::trimmed).filter(|grid| !grid.rows.is_empty()).collect()
}

/// What counters add to a program at work, on both sides.
fn overhead(results: &Results, columns: &[(System, Interface, String)]) -> Grid {
    let all = |system, name| {
        let operation = results.of(system, name)?;
        Some(operation.host_instructions()? + operation.guest_instructions()?)
    };
    let of = |(system, interface, _): &(System, Interface, String), perfctr, perf, nobody| {
        let counting = match interface {
            Interface::Perfctr => all(*system, perfctr),
            Interface::Perf => all(*system, perf),
            Interface::Nothing => None,
        }?;
        Some((counting / all(*system, nobody)? - 1.0) * 100.0)
    };
    let row = |(title, perfctr, perf, nobody): &(&str, &'static str, &'static str, &'static str)| {
        let values = columns.iter().map(|column| of(column, *perfctr, *perf, *nobody)).collect();
        ((*title).to_owned(), values)
    };
    Grid {
        title: "Overhead on a program at work, per cent of the instructions of guest and host".to_owned(),
        columns: columns.iter().map(|(_, _, title)| title.clone()).collect(),
        rows: WORKING.iter().map(row).collect(),
        digits: 1,
        signed: true,
    }
}

/// Instructions counted less those known.
fn accuracy(measured: &Measured) -> Grid {
    let of = |work: &str, interface: &str| {
        let name = format!("accuracy/{interface}/{work}");
        measured.counts.iter().find(|counted| counted.name == name).map(|counted| counted.error() as f64)
    };
    let row = |(title, work): &(&str, &str)| {
        ((*title).to_owned(), INTERFACES.iter().map(|(_, interface)| of(work, interface)).collect())
    };
    Grid {
        title: format!("Accuracy, {}: instructions counted less instructions known", measured.system.title()),
        columns: INTERFACES.iter().map(|(title, _)| (*title).to_owned()).collect(),
        rows: WORK.iter().map(row).collect(),
        digits: 0,
        signed: true,
    }
}

fn starts(starts: &[Start]) -> Vec<Grid> {
    let columns: Vec<String> = starts.iter().map(|start| start.vmm.clone()).collect();
    let row = |name: &str, value: &dyn Fn(&Start) -> Option<f64>| {
        (name.to_owned(), starts.iter().map(value).collect())
    };
    let million = |spent: Option<Spent>| spent.map(|spent| (spent.host.user + spent.host.kernel) / 1e6);
    let kilobytes = |bytes: u64| bytes as f64 / 1024.0;
    vec![
        Grid {
            title: "Start: millions of instructions of the host".to_owned(),
            columns: columns.clone(),
            rows: vec![
                row("null guest, to its first words", &|start| million(start.null_guest)),
                row("Linux (bzImage), to its first program", &|start| million(start.linux)),
                row("perfvisor run -- true, in all", &|start| million(start.run_true)),
            ],
            digits: 2,
            signed: false,
        },
        Grid {
            title: "Start: exits, to Linux's first program".to_owned(),
            columns: columns.clone(),
            rows: vec![
                row("exits", &|start| start.linux.map(|spent| spent.host.exits)),
                row("of them to the VMM", &|start| start.linux.map(|spent| spent.host.user_exits)),
            ],
            digits: 0,
            signed: false,
        },
        Grid {
            title: "Size, kB of 1024 bytes".to_owned(),
            columns,
            rows: vec![
                row("memory beyond guest RAM, idle Linux (PSS)", &|start| {
                    start.linux.map(|spent| kilobytes(spent.pss))
                }),
                row("of it anonymous", &|start| start.linux.map(|spent| kilobytes(spent.anonymous))),
                row("memory beyond guest RAM, null guest (PSS)", &|start| {
                    start.null_guest.map(|spent| kilobytes(spent.pss))
                }),
                row("program", &|start| Some(kilobytes(start.program))),
                row("libraries beside it", &|start| Some(kilobytes(start.libraries))),
            ],
            digits: 0,
            signed: false,
        },
    ]
}

/// For a terminal.
pub(crate) fn text(results: &Results) -> String {
    grids(results).iter().map(Grid::text).collect()
}
