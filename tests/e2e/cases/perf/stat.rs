//! `perf stat`: counts are exact, whatever else is counted beside them, and however often; the host's totals are their sums.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION};

use super::printed::{self, Counts, counts, stat};
use super::{family, programs};
use crate::case::{Case, Evidence, Setting, Waiting, single};
use crate::dump::Dump;

pub(crate) const CASE: Case = Case {
    name: "stat",
    copies: programs::perf,
    limit: Duration::from_secs(120),
    guest,
    answer,
    tests: || single(host),
};

const COUNTED: &str = "counted";

/// Shorter than a clock tick, and of many.
const ITERATIONS: [u64; 2] = [1_000, 5_000_000];

const EVENTS: [&str; 2] = ["instructions:u", "branches:u"];

fn guest(setting: &Setting) -> String {
    let [few, many] = ITERATIONS.map(programs::spin);
    let all = family::of(setting.pmu).map(family::Family::events).unwrap_or_default();
    let lines = [
        stat(&EVENTS, "", &few),
        stat(&EVENTS, "", &many),
        stat(all, "", &many),
        format!("ask {COUNTED}"),
        stat(&EVENTS, "-r 3", &few),
    ];
    lines.join("\n")
}

/// Nothing but what perf has printed so far was counted.
fn answer(waiting: &Waiting<'_>) -> Result<()> {
    ensure!(waiting.question == COUNTED, "nobody knows of '{}'", waiting.question);
    let printed = counts(waiting.transcript)?;
    let dump = Dump::of(waiting.machine)?;
    dump.is_complete()?;
    let family = family::of(waiting.setting.pmu)?;
    for event in EVENTS {
        let rows = dump.vcpus.iter().flat_map(|vcpu| &vcpu.pmu.events);
        let of_event = rows.filter(|row| family.name_of(row).as_deref() == Some(event));
        let host: u64 = of_event.map(|row| row.total).sum();
        let guest = printed.iter().map(|counts| printed::of(counts, event)).sum::<Result<u64>>()?;
        ensure!(host == guest, "{event}: the host counted {host}, the guest attributed {guest}");
    }
    Ok(())
}

fn host(evidence: &Evidence) -> Result<()> {
    let all = counts(&evidence.output)?;
    let [few, many, together, repeated] = &all[..] else {
        anyhow::bail!("{} sets of counts, expected 4", all.len())
    };
    differ_exactly((few, ITERATIONS[0]), (many, ITERATIONS[1]))?;
    for event in EVENTS {
        let (alone, beside) = (printed::of(many, event)?, printed::of(together, event)?);
        ensure!(alone == beside, "{event}: {alone}, beside others {beside}");
        let (once, thrice) = (printed::of(few, event)?, printed::of(repeated, event)?);
        ensure!(once == thrice, "{event}: {once}, three times {thrice}");
    }
    let asked = family::of(evidence.setting.pmu)?.events();
    ensure!(together.len() == asked.len(), "asked for {asked:?}, got {together:?}");
    if let Some(&cycles) = together.get("cycles:u") {
        let instructions = printed::of(together, "instructions:u")?;
        ensure!(cycles == instructions, "{cycles} cycles, but the lab takes one for each of {instructions}");
    }
    Ok(())
}

/// Counts of two runs of `spin` with these numbers of iterations differ by exactly the iterations' events.
pub(super) fn differ_exactly(short: (&Counts, u64), long: (&Counts, u64)) -> Result<()> {
    let iterations = long.1 - short.1;
    for (event, each) in EVENTS.into_iter().zip([INSTRUCTIONS_PER_ITERATION, BRANCHES_PER_ITERATION]) {
        let (few, many) = (printed::of(short.0, event)?, printed::of(long.0, event)?);
        let difference =
            many.checked_sub(few).with_context(|| format!("{event}: {many} is less than {few}"))?;
        let expected = iterations * each;
        ensure!(
            difference == expected,
            "{event}: {few} and {many} for {iterations} iterations more: {difference}, expected exactly {expected}"
        );
    }
    Ok(())
}
