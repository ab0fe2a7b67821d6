//! Tables of accuracy: by what is counted, interface, mode and number of counters.

use crate::grid::{Cell, Grid};
use crate::results::{Counted, Measured};

/// What is counted, and in which setting.
const WORK: [(&str, &str); 10] = [
    ("loop", "loop"),
    ("instructions that KVM executes", "emulated"),
    ("page faults", "page-faults"),
    ("system calls", "system-calls"),
    ("repeated string instructions", "rep-strings"),
    ("signals", "signals"),
    ("context-switch storm", "context-switches"),
    ("loop, host interrupted each 50,000 instructions", "loop@interrupted"),
    ("migration between 2 vCPUs", "migration@2-vcpus"),
    ("loop, 4 vCPUs on 2 processors", "all-vcpus@4-vcpus"),
];
/// By what, and in which mode.
const BY: [(&str, &str); 6] = [
    ("perfctr call, 1 counter", "perfctr-call-1/user"),
    ("perfctr call, 4", "perfctr-call-4/user"),
    ("perfctr page, 4", "perfctr-page-4/user"),
    ("perf call, 1", "perf-read-1/user"),
    ("perf call, 4", "perf-read-4/user"),
    ("perf page, 4", "perf-page-4/user"),
];

/// The same, with the kernel's own instructions.
const KERNEL: [(&str, &str); 4] = [
    ("perfctr call, kernel", "perfctr-call-1/kernel"),
    ("perfctr call, both", "perfctr-call-1/both"),
    ("perf call, kernel", "perf-read-1/kernel"),
    ("perf call, both", "perf-read-1/both"),
];
const INTERFACES: [(&str, &str); 4] = [
    ("perfctr call", "perfctr-call"),
    ("perfctr page and RDPMC", "perfctr-page"),
    ("perf call", "perf-read"),
    ("perf page and RDPMC", "perf-page"),
];
const PATTERNS: [(&str, &str); 2] =
    [("from one reading to the next", "read-read"), ("from start to stop", "start-stop")];
const MODES: [&str; 3] = ["user", "kernel", "both"];
const NUMBERS: [u32; 3] = [1, 2, 4];

/// Instructions counted less those known.
pub(crate) fn known(measured: &Measured) -> Grid {
    let row = |(title, work): &(&str, &str)| {
        let of = |(_, by): &(&str, &str)| error(measured, &format!("accuracy/{by}/{work}"));
        ((*title).to_owned(), BY.iter().map(of).collect())
    };
    Grid {
        title: format!("Accuracy, {}: instructions counted less instructions known", measured.system.title()),
        columns: BY.iter().map(|(title, _)| (*title).to_owned()).collect(),
        rows: WORK.iter().map(row).collect(),
        digits: 0,
        signed: true,
        note: KNOWN,
    }
}

/// In kernel mode what is known is the host's count of all the guest.
pub(crate) fn kernel(measured: &Measured) -> Grid {
    let row = |(title, work): &(&str, &str)| {
        let of = |(_, by): &(&str, &str)| {
            let name = format!("compared/{by}/{work}");
            let percent = |counted: &Counted| counted.error() as f64 * 100.0 / counted.known as f64;
            Cell::or(counted(measured, &name).map(percent), measured.reason(&name))
        };
        ((*title).to_owned(), KERNEL.iter().map(of).collect())
    };
    Grid {
        title: format!("Kernel mode, {}: counted beyond the host's count, per cent", measured.system.title()),
        columns: KERNEL.iter().map(|(title, _)| (*title).to_owned()).collect(),
        rows: WORK.iter().map(row).collect(),
        digits: 2,
        signed: true,
        note: OUTSIDE,
    }
}

/// What is counted of nothing.
pub(crate) fn nothing(measured: &Measured) -> Grid {
    let mut rows = Vec::new();
    for mode in MODES {
        for (title, pattern) in PATTERNS {
            for number in NUMBERS {
                let of = |(_, interface): &(&str, &str)| {
                    error(measured, &format!("nothing/{interface}-{number}/{mode}/{pattern}"))
                };
                let counters = if number == 1 { "counter" } else { "counters" };
                let title = format!("{mode}, {title}, {number} {counters}");
                rows.push((title, INTERFACES.iter().map(of).collect()));
            }
        }
    }
    Grid {
        title: format!("Null measurement, {}: instructions counted of nothing", measured.system.title()),
        columns: INTERFACES.iter().map(|(title, _)| (*title).to_owned()).collect(),
        rows,
        digits: 0,
        signed: true,
        note: NOTHING,
    }
}

fn error(measured: &Measured, name: &str) -> Cell {
    let error = counted(measured, name).map(|counted| counted.error() as f64);
    Cell::or(error, measured.reason(name))
}

fn counted<'a>(measured: &'a Measured, name: &str) -> Option<&'a Counted> {
    measured.counts.iter().find(|counted| counted.name == name)
}

const KNOWN: &str = "The work is written in assembly, so that every instruction of user mode is known; it is done in two lengths, so that the readings' own
instructions are in both. 0 is exact. A page that the kernel changes while it is read is read anew, by the program, so there the median of three such
pairs is taken. Of 4 vCPUs the one that is farthest off stands for all. The instruction that KVM executes is a CPUID in each of 2,000 rounds: by
perf nobody counts it.";
const OUTSIDE: &str = "What a kernel executes is known to nobody beforehand, so the host counts all of the guest meanwhile. It counts what the guest does
besides, too, for the marks and by its timers, and that is not the same in both lengths: up to 40,000 instructions of 14 to 27 million, of either sign,
and another time others. It is as much where KVM itself counts.";
const NOTHING: &str = "These are the interface's own instructions, from where a counter is looked at to where it is looked at again (after Zaparanuks, Jovic,
Hauswirth, ISPASS 2009); of nine times the median, and the same each time: who subtracts them has nothing left. In user mode they are the library's on both
sides of the call, and the reading of the page. In kernel mode they are the rest of one call and the beginning of the next: perfctr's are the same for any
number of counters, where one operation of the doorbell reads all; perf reads one after the other. By page and RDPMC there are none, unless RDPMC
faults: then the guest driver stands in for it, at perf's page too.";
