//! BENCHMARKS.md: the tables that decide, and what was aimed at, on a page or two. All figures are in the JSON and on the page
//! beside it (`docs/benchmarks`).

use crate::aims::{self, Aim};
use crate::compare;
use crate::grid::Grid;
use crate::results::{Measured, Results};
use crate::start::{Spent, Start};
use crate::system::System;
use crate::table::number;

/// The whole file.
pub(crate) fn text(results: &Results) -> String {
    let remark = results.remark.as_ref().map(|remark| format!(" {remark}")).unwrap_or_default();
    format!(
        "{HEAD}\nGuest kernel {}, PMU {}.{remark}\n\n{}{}{}{}",
        results.kernel,
        results.pmu,
        costs(results),
        accuracy(&results.systems),
        starts(&results.starts),
        aims(&aims::aims(results)),
    )
}

/// Tables of [`compare`], by their titles, and the rows that decide.
const TABLES: [(&str, &[&str]); 3] = [
    ("Exits, per operation", OPERATIONS),
    ("Instructions of the host, per operation", OPERATIONS),
    (
        "Overhead on a program at work, per cent of the instructions of guest and host",
        &[
            "1 counter, 2 switches each 200,000 instructions",
            "4 counters",
            "4 counters, 4 vCPUs on 2 processors",
            "each 1,000,000",
        ],
    ),
];
const OPERATIONS: &[&str] = &[
    "context switch, nobody counts",
    "context switch, 1 counter each",
    "context switch, 4 counters each",
    "context switch, 4 interrupting counters each",
    "read 4 counters by a call",
    "read 1 counter of 4, the cheapest way",
    "set 1 counter anew",
    "begin and end counting",
    "the same, overflow to signal and back",
    "the same, overflow to sample",
];

/// Rows that say "the same" or less, as they are called without the row before them.
const ALONE: [(&str, &str); 4] = [
    ("4 counters", "4 counters, 2 switches each 200,000 instructions"),
    ("each 1,000,000", "a sample each 1,000,000 instructions"),
    ("the same, overflow to signal and back", "100,000 instructions, overflow to signal and back"),
    ("the same, overflow to sample", "100,000 instructions, overflow to sample"),
];

fn costs(results: &Results) -> String {
    let mut grids = compare::grids(results);
    let chosen = TABLES.iter().filter_map(|(title, rows)| {
        let place = grids.iter().position(|grid| grid.title == *title)?;
        let mut grid = grids.swap_remove(place);
        grid.note = "";
        grid.rows.retain(|(name, _)| rows.contains(&name.as_str()));
        for (name, _) in &mut grid.rows {
            if let Some((_, alone)) = ALONE.iter().find(|(row, _)| row == name) {
                (*alone).clone_into(name);
            }
        }
        without_no_pmu(&mut grid);
        grid.columns.iter_mut().for_each(|column| *column = column.replace(" on perfvisor, source ", ", "));
        Some(grid.markdown())
    });
    chosen.collect()
}

/// A guest without counters only has the rows in which nobody counts.
fn without_no_pmu(grid: &mut Grid) {
    if let Some(column) = grid.columns.iter().position(|column| column == System::None.title()) {
        grid.columns.remove(column);
        grid.rows.iter_mut().for_each(|(_, cells)| {
            cells.remove(column);
        });
    }
}

/// How many counts are exact, and how far off the worst is.
fn accuracy(systems: &[Measured]) -> String {
    let mut text = "### Accuracy\n\n| | user mode by perfctr, exact | by perf, exact | kernel mode, farthest from the host's count |\n\
                    |---|---:|---:|---:|\n"
        .to_owned();
    for measured in systems.iter().filter(|measured| !measured.counts.is_empty()) {
        let exact = |interface: &str| {
            let of = measured.counts.iter().filter(|count| count.name.starts_with(interface));
            let (all, exact) =
                of.fold((0, 0), |(all, exact), count| (all + 1, exact + usize::from(count.error() == 0)));
            if all == 0 { "-".to_owned() } else { format!("{exact} of {all}") }
        };
        let compared = measured.counts.iter().filter(|count| count.name.starts_with("compared/"));
        let farthest = compared
            .map(|count| (count.error() as f64 * 100.0 / count.known as f64).abs())
            .reduce(f64::max)
            .map_or("-".to_owned(), |percent| format!("{percent:.2} %"));
        text += &format!(
            "| {} | {} | {} | {farthest} |\n",
            measured.system.title(),
            exact("accuracy/perfctr-"),
            exact("accuracy/perf-"),
        );
    }
    text + ACCURACY
}

fn starts(starts: &[Start]) -> String {
    let mut text = STARTS.to_owned();
    for Start { vmm, null_guest, linux, .. } in starts {
        let of = |spent: &Result<Spent, String>, digits, value: fn(&Spent) -> f64| {
            number(spent.as_ref().ok().map(value), digits)
        };
        let millions = |spent: &Spent| (spent.host.user + spent.host.kernel) / 1e6;
        let kilobytes = |spent: &Spent| spent.pss as f64 / 1024.0;
        if null_guest.is_ok() || linux.is_ok() {
            text += &format!(
                "| {vmm} | {} | {} | {} | {} |\n",
                of(null_guest, 2, millions),
                of(linux, 2, millions),
                of(linux, 0, |spent| spent.host.user_exits),
                of(linux, 0, kilobytes),
            );
        }
    }
    text + "\n"
}

/// An aim without the system it is for, its limit, and every source's figure.
struct Row<'a> {
    name: &'a str,
    limit: String,
    figures: [Option<&'a Aim>; SOURCES.len()],
}

/// The systems that aims are for, and their columns.
const SOURCES: [(System, &str); 3] =
    [(System::Perf, "source perf"), (System::Module, "module"), (System::Kvm, "kvm")];

fn rows(aims: &[Aim]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for aim in aims {
        let name = |(system, _): &(System, &str)| aim.aim.strip_prefix(system.title())?.strip_prefix(", ");
        let Some((column, name)) =
            SOURCES.iter().enumerate().find_map(|(i, source)| Some((i, name(source)?)))
        else {
            continue;
        };
        let place = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            let digits = aim.digits;
            rows.push(Row { name, limit: format!("{:.digits$}", aim.limit), figures: [None; SOURCES.len()] });
            rows.len() - 1
        });
        rows[place].figures[column] = Some(aim);
    }
    rows
}

/// Met ones in a list; missed ones in a table, with each cause once.
fn aims(aims: &[Aim]) -> String {
    let (missed, met): (Vec<_>, Vec<_>) =
        rows(aims).into_iter().partition(|row| row.figures.iter().flatten().any(|aim| !aim.is_met()));
    let mut text = format!(
        "## Aims\n\n{} of {} aims are met. Met with every source:\n\n",
        aims.iter().filter(|aim| aim.is_met()).count(),
        aims.len(),
    );
    let mut limits: Vec<&str> = met.iter().map(|row| &row.limit[..]).collect();
    limits.dedup();
    for limit in limits.iter().enumerate().filter(|(i, limit)| !limits[..*i].contains(limit)).map(|(_, l)| l)
    {
        let names = met.iter().filter(|row| row.limit == **limit).map(|row| row.name);
        text += &format!("* at most {limit}: {}\n", names.collect::<Vec<_>>().join("; "));
    }
    text += "\nMissed with a source, where a number in brackets names the cause:\n\n| aim | at most |";
    SOURCES.iter().for_each(|(_, title)| text += &format!(" {title} |"));
    text += "\n|---|---:|---:|---:|---:|\n";
    let mut causes = Vec::new();
    for row in missed {
        text += &format!("| {} | {} |", row.name, row.limit);
        for aim in row.figures {
            text += &aim
                .map_or(" - |".to_owned(), |aim| format!(" {}{} |", aim.number(), verdict(aim, &mut causes)));
        }
        text.push('\n');
    }
    text.push('\n');
    for (index, (_, cause)) in causes.iter().enumerate() {
        text += &format!("{}. {cause}\n", index + 1);
    }
    text
}

/// Nothing if it is met; else the number of its cause. Causes that differ in figures alone are one, with the first's figures.
fn verdict(aim: &Aim, causes: &mut Vec<(String, String)>) -> String {
    if aim.is_met() {
        return String::new();
    }
    let cause = match (&aim.measured, &aim.cause) {
        (Err(reason), _) => format!("not measured: {reason}"),
        (Ok(_), Some(cause)) => cause.clone(),
        (Ok(_), None) => "not known".to_owned(),
    };
    let words: String = cause.chars().filter(|character| !character.is_ascii_digit()).collect();
    let index = causes.iter().position(|(known, _)| *known == words).unwrap_or_else(|| {
        causes.push((words, cause));
        causes.len() - 1
    });
    format!(" ({})", index + 1)
}

const HEAD: &str = "# Benchmarks

What counting costs and how right it is, in *instructions executed* and *exits* per operation, on an emulated processor whose counters
are exact. There are no times: they mean nothing there. [docs/benchmarks](docs/benchmarks/README.md) says how it is measured
and has all figures. `cargo xtask bench --write` writes this page and those.

*perfctr, module* is the guest driver on perfvisor with the source `module`; *perf, module* is the guest kernel's perf there; and so on. QEMU
(microvm) has KVM's virtual PMU, the same guest kernel and the same programs. A dash stands for what does not exist.
";

const ACCURACY: &str = "
In user mode every instruction of the work is known: loops, page faults, system calls, string instructions, signals, context switches,
interrupts, migrations, more vCPUs than processors. In kernel mode the host counts the whole guest, which does a little besides.

";

const STARTS: &str = "### Start and size

| | null guest, millions of host instructions | Linux to its first program, millions | exits to the VMM | kB beyond guest RAM (PSS) |
|---|---:|---:|---:|---:|
";

#[cfg(test)]
mod tests {
    use super::*;

    fn aim(system: System, name: &str, measured: f64, cause: Option<&str>) -> Aim {
        let aim = format!("{}, {name}", system.title());
        Aim { aim, limit: 1.0, measured: Ok(measured), cause: cause.map(str::to_owned), digits: 0 }
    }

    #[test]
    fn causes_are_told_once() {
        let text = aims(&[
            aim(System::Perf, "switch: exits", 5.0, Some("3 are KVM's")),
            aim(System::Module, "switch: exits", 6.0, Some("4 are KVM's")),
            aim(System::Kvm, "switch: exits", 1.0, None),
            aim(System::Perf, "read: exits", 1.0, None),
        ]);
        assert!(
            text.contains("2 of 4 aims are met") && text.contains("* at most 1: read: exits\n"),
            "{text}"
        );
        assert!(text.contains("| switch: exits | 1 | 5 (1) | 6 (1) | 1 |"), "{text}");
        assert!(text.contains("1. 3 are KVM's\n") && !text.contains("2. "), "{text}");
    }
}
