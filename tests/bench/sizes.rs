//! Tables of VMMs by themselves: their start, their size, and many of them.

use crate::grid::Grid;
use crate::results::Results;
use crate::scale::Scale;
use crate::start::{Spent, Start};

/// How machines start, and what they take.
pub(crate) fn starts(starts: &[Start]) -> Vec<Grid> {
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
            note: "",
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
            note: "",
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
            note: "",
        },
    ]
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
        let values = vec![
            kilobytes(idle.pss, *machines),
            kilobytes(idle.anonymous, *machines),
            kilobytes(idle.pss, machines * vcpus),
            idle.dump.map(|instructions| instructions / 1e6),
        ];
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
`perfvisor dump`: its own start is nearly all of it; in a Linux guest what the idle machines do meanwhile is in it, too.
More than 16 Linux guests do not fit into the lab machine's 3 GB with 128 MB each.";
