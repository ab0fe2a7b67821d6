//! Guests with other models than a K8: what each has, and what it says it cannot do.

use anyhow::{Context, Result, ensure};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION};

use crate::perfvisor::{self, BOOT_LIMIT, Ended};

fn run(model: &str, script: &str) -> Result<Ended> {
    run_with(&[], model, script)
}

fn run_with(options: &[&str], model: &str, script: &str) -> Result<Ended> {
    let name = format!("test-{model}");
    let arguments = [&["run", "--name", &name, "--pmu", model], options, &["--", "sh", "-c", script]];
    perfvisor::run(arguments.concat(), b"", BOOT_LIMIT)
}

/// A processor of old.
struct Old {
    model: &'static str,
    /// As perfex names it.
    name: &'static str,
    /// Whether it tells user mode from kernel mode, has the event of branches, a time-stamp counter, overflow interrupts.
    levels: bool,
    branches: bool,
    tsc: bool,
    interrupts: bool,
}

/// Of each way in which they have their registers, one that no other guest here has.
const OLD: [Old; 4] = [
    Old {
        model: "p5mmx",
        name: "Intel Pentium MMX",
        levels: true,
        branches: true,
        tsc: true,
        interrupts: false,
    },
    Old {
        model: "winchip2",
        name: "WinChip 2/3",
        levels: false,
        branches: false,
        tsc: false,
        interrupts: false,
    },
    Old { model: "c3", name: "VIA C3", levels: false, branches: false, tsc: true, interrupts: false },
    Old {
        model: "p4m3",
        name: "Intel Pentium 4 Model 3",
        levels: true,
        branches: true,
        tsc: true,
        interrupts: true,
    },
];
const SHORT: u64 = 1_000;
const LONG: u64 = 20_001_000;
/// What the kernel does beside a program differs by less than one part in so many of that, where both are counted.
const KERNELS_SHARE: u64 = 100;

/// Threads of a guest with such a processor have their counters, which count the events that they are given.
pub(super) fn old() -> Result<()> {
    let spin = format!("{}:/bin/spin", env!("CARGO_BIN_EXE_spin"));
    let pmctest = format!("{}:/bin/pmctest", env!("CARGO_BIN_EXE_pmctest"));
    for Old { model, name, levels, branches, tsc, interrupts } in OLD {
        let user = if levels { ":u" } else { "" };
        let mut events = format!("instructions{user}");
        if branches {
            events += &format!(",branches{user}");
        }
        let perfex = |iterations| format!("perfex -e {events} spin {iterations:012} 2>&1");
        let mut script = format!("perfex -i && echo && {} && echo && {}", perfex(SHORT), perfex(LONG));
        if interrupts {
            script += " && echo && pmctest family-";
        }
        let ended = run_with(&["--kernel", "6.1", "--copy", &spin, "--copy", &pmctest], model, &script)?;
        ended.expect_status(0).context(model)?;
        let said = String::from_utf8_lossy(&ended.stdout);
        ensure!(said.contains(&format!("({name})")), "{model}: it is not called {name}{ended}");
        let mut parts = said.split("\n\n").skip(1);
        let [short, long] = [parts.next(), parts.next()].map(|part| counts(part.unwrap_or_default()));
        grew(&short?, &long?, levels, tsc).with_context(|| format!("{model}{ended}"))?;
        let overflows = parts.next().is_some_and(|part| part.starts_with("ok family-overflows"));
        ensure!(overflows == interrupts, "{model}: overflow interrupts{ended}");
    }
    Ok(())
}

/// What perfex printed, some of which only a P4 or a processor without a TSC has: the TSC, and the events' counts.
fn counts(text: &str) -> Result<(Option<u64>, Vec<u64>)> {
    let count = |line: &str| {
        let (_, count) = line.rsplit_once('\t').context("no tab")?;
        count.split_whitespace().next().context("no count")?.parse::<u64>().with_context(|| line.to_owned())
    };
    let with = |start: &'static str| text.lines().filter(move |line| line.starts_with(start)).map(count);
    Ok((with("tsc\t").next().transpose()?, with("event 0x").collect::<Result<_>>()?))
}

fn grew(
    (few_cycles, few): &(Option<u64>, Vec<u64>),
    (cycles, many): &(Option<u64>, Vec<u64>),
    exactly: bool,
    tsc: bool,
) -> Result<()> {
    ensure!(cycles.is_some() == tsc && few_cycles.is_some() == tsc, "the TSC: {few_cycles:?}, {cycles:?}");
    ensure!(cycles.is_none_or(|cycles| cycles > 0), "the TSC stands still");
    ensure!(!many.is_empty() && many.len() == few.len(), "{few:?}, then {many:?}");
    for ((few, many), each) in few.iter().zip(many).zip([INSTRUCTIONS_PER_ITERATION, BRANCHES_PER_ITERATION])
    {
        let expected = (LONG - SHORT) * each;
        let grown = many.checked_sub(*few).with_context(|| format!("{few}, then {many}"))?;
        let beside = if exactly { 0 } else { expected / KERNELS_SHARE };
        ensure!(grown.abs_diff(expected) <= beside, "grown by {grown}, expected {expected}");
    }
    Ok(())
}

/// Only the time-stamp counter: it counts, and any other counter is refused.
pub(super) fn generic() -> Result<()> {
    let ended =
        run("generic", "perfex -i; perfex true 2>&1; perfex -e 0x004100C0 true 2>&1; echo ended with $?")?;
    ended.expect_status(0)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    for text in ["cpu_nrctrs\t\t0", "tsc\t\t\t", "ended with 1"] {
        ensure!(said.contains(text), "no {text:?} in the output{ended}");
    }
    ensure!(!said.contains("event 0x"), "a counter that is not there counted{ended}");
    Ok(())
}

/// No PMU: the driver does not load, and programs say so.
pub(super) fn none() -> Result<()> {
    let ended = run("none", "perfex -e 0x004100C0 true; echo ended with $?; dmesg | grep perfctr")?;
    ended.expect_status(0)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    for text in ["ended with 1", "no perfvisor counters here", "its hypervisor keeps them from this system"] {
        ensure!(said.contains(text), "no {text:?} in the output{ended}");
    }
    ensure!(ended.stderr.contains("driver"), "perfex does not say what is missing{ended}");
    Ok(())
}
