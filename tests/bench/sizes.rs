//! Tables of VMMs by themselves: their start, their size, and many of them.

use crate::grid::{Cell, Grid};
use crate::results::Results;
use crate::scale::Scale;
use crate::start::{Spent, Start};

/// How machines start, and what they take.
pub(crate) fn starts(starts: &[Start]) -> Vec<Grid> {
    let columns: Vec<String> = starts.iter().map(|start| start.vmm.clone()).collect();
    let row =
        |name: &str, value: &dyn Fn(&Start) -> Cell| (name.to_owned(), starts.iter().map(value).collect());
    let million = |spent: &Spent| (spent.host.user + spent.host.kernel) / 1e6;
    let kilobytes = |bytes: u64| bytes as f64 / 1024.0;
    vec![
        Grid {
            title: "Start: millions of instructions of the host".to_owned(),
            columns: columns.clone(),
            rows: vec![
                row("null guest, to its first words", &|start| of(&start.null_guest, million)),
                row("Linux (bzImage), to its first program", &|start| of(&start.linux, million)),
                row("perfvisor run -- true, in all", &|start| {
                    start.run_true.as_ref().map_or(Cell::Nothing, |spent| of(spent, million))
                }),
            ],
            digits: 2,
            signed: false,
            note: "",
        },
        Grid {
            title: "Start: exits, to Linux's first program".to_owned(),
            columns: columns.clone(),
            rows: vec![
                row("exits", &|start| of(&start.linux, |spent| spent.host.exits)),
                row("of them to the VMM", &|start| of(&start.linux, |spent| spent.host.user_exits)),
            ],
            digits: 0,
            signed: false,
            note: "",
        },
        Grid {
            title: "Size, kB of 1024 bytes".to_owned(),
            columns,
            rows: vec![
                row("memory beyond guest RAM, idle Linux (PSS)", &|start| {
                    of(&start.linux, |spent| kilobytes(spent.pss))
                }),
                row("of it anonymous", &|start| of(&start.linux, |spent| kilobytes(spent.anonymous))),
                row("memory beyond guest RAM, null guest (PSS)", &|start| {
                    of(&start.null_guest, |spent| kilobytes(spent.pss))
                }),
                row("program", &|start| Some(kilobytes(start.program)).into()),
                row("libraries beside it", &|start| Some(kilobytes(start.libraries)).into()),
            ],
            digits: 0,
            signed: false,
            note: "",
        },
    ]
}

fn of(spent: &Result<Spent, String>, value: impl Fn(&Spent) -> f64) -> Cell {
    match spent {
        Ok(spent) => Cell::or(Some(value(spent)), Some("it could not be counted".to_owned())),
        Err(reason) => Cell::Missing(reason.clone()),
    }
}

/// Many machines, and many vCPUs.
pub(crate) fn scale(results: &Results) -> Vec<Grid> {
    let row = |scale: &Scale| {
        let kilobytes = |bytes: u64, each: usize| Some(bytes as f64 / 1024.0 / each as f64);
        let Scale { vmm, machines, vcpus, linux, idle } = scale;
        let guest = if *linux { "Linux" } else { "null guest" };
        let shape = match (machines, vcpus) {
            (1, 1) => "1 machine, 1 vCPU".to_owned(),
            (1, vcpus) => format!("1 machine, {vcpus} vCPUs"),
            (machines, _) => format!("{machines} machines, 1 vCPU each"),
        };
        let values = match idle {
            Ok(idle) => vec![
                kilobytes(idle.pss, *machines).into(),
                kilobytes(idle.anonymous, *machines).into(),
                kilobytes(idle.pss, machines * vcpus).into(),
                idle.dump.map(|instructions| instructions / 1e6).into(),
            ],
            Err(reason) => vec![Cell::Missing(reason.clone()); 4],
        };
        (format!("{vmm}, {guest}: {shape}"), values)
    };
    let columns = [
        "PSS per machine, kB",
        "of it anonymous, kB",
        "PSS per vCPU, kB",
        "a dump of one, millions of instructions",
    ];
    vec![Grid {
        title: "Scale: idle machines, memory beyond guest RAM".to_owned(),
        columns: columns.iter().map(|&column| column.to_owned()).collect(),
        rows: results.scale.iter().map(row).collect(),
        digits: 1,
        signed: false,
        note: SCALE,
    }]
}

const SCALE: &str = "Machines share the pages of the program's file, so that each has a smaller share of them the more there are. A dump is
`perfvisor dump` of one of them, up to its end; what the machine does to answer, about 140,000 instructions, is not in it.
More than 16 Linux guests do not fit into the lab machine's 3 GB with 128 MB each.";
