//! Source `kvm`: KVM's own vPMU below the guest driver's own registers.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use images::layout::Layout;
use tests::counts;
use tests::event::{BRANCHES, INSTRUCTIONS};

use super::counted::PERFEX;
use super::dump::{self, GROWTH, GROWTH_LIMIT, RUNNING};
use super::pmctest;
use crate::case::{Case, Evidence, Setting, Waiting, no_copies, single};
use crate::confinement;
use crate::dump::Dump;
use crate::perfvisor::{self, BOOT_LIMIT, COMMAND_LIMIT, Ended, RUN_FAILED};

/// The host looks at the registers while a program counts.
pub(crate) const DUMP: Case = Case {
    name: "dump",
    copies: no_copies,
    limit: Duration::from_secs(300),
    guest,
    answer,
    tests: || single(host),
};

/// An overflow interrupt is some exits to KVM, and each NMI of the guest's writes LVTPC again.
pub(crate) const PMCTEST: Case = pmctest::CASE;

fn guest(_: &Setting) -> String {
    dump::running_while_asked()
}

fn answer(waiting: &Waiting<'_>) -> Result<()> {
    ensure!(waiting.question == RUNNING, "nobody knows of '{}'", waiting.question);
    let first = Dump::of(waiting.machine)?;
    confinement::is_in_force(&first, "kvm")?;
    let mut earlier = largest(&first)?;
    for _ in 0..3 {
        earlier = grown(waiting.machine, &earlier)?;
    }
    let table = perfvisor::run(["dump", waiting.machine], b"", COMMAND_LIMIT)?;
    table.expect_status(0)?;
    let text = String::from_utf8_lossy(&table.stdout);
    ensure!(text.contains("source kvm") && text.contains("0x004100c0"), "the table:{table}");
    Ok(())
}

/// The first values that have both grown since `earlier`.
fn grown(machine: &str, earlier: &BTreeMap<u32, u64>) -> Result<BTreeMap<u32, u64>> {
    let end = Instant::now() + GROWTH_LIMIT;
    loop {
        let later = largest(&Dump::of(machine)?)?;
        let value = |event| later.get(event).copied().unwrap_or(0);
        if earlier.iter().all(|(event, before)| value(event) >= before + GROWTH) {
            return Ok(later);
        }
        ensure!(Instant::now() < end, "{earlier:x?}, and {GROWTH_LIMIT:?} later {later:x?}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Registers are a processor's, not a program's: the value where most was counted, of both events.
fn largest(dump: &Dump) -> Result<BTreeMap<u32, u64>> {
    let mut largest = BTreeMap::new();
    for counter in dump.vcpus.iter().filter_map(|vcpu| vcpu.kvm.as_ref()).flat_map(|kvm| &kvm.counters) {
        let value = largest.entry(counter.evntsel as u32).or_insert(0);
        *value = counter.value.max(*value);
    }
    largest.retain(|event, _| [INSTRUCTIONS, BRANCHES].contains(event));
    ensure!(largest.len() == 2, "both events are on no vCPU: {dump:?}");
    Ok(largest)
}

fn host(evidence: &Evidence) -> Result<()> {
    let counts = evidence.counts()?;
    let [killed] = &counts[..] else { anyhow::bail!("{} counts printed, expected 1", counts.len()) };
    ensure!(killed.of(INSTRUCTIONS)? >= GROWTH && killed.of(BRANCHES)? >= GROWTH, "too little: {killed:?}");
    Ok(())
}

fn run(source: &str, copies: &[String], script: &str) -> Result<Ended> {
    let spin = format!("{}:/bin/spin", env!("CARGO_BIN_EXE_spin"));
    let mut arguments = vec!["run", "--source", source, "--copy", &spin];
    copies.iter().for_each(|copy| arguments.extend(["--copy", copy]));
    arguments.extend(["--", "sh", "-c", script]);
    perfvisor::run(arguments, b"", BOOT_LIMIT)
}

/// The same programs count the same with each source.
pub(super) fn same_numbers() -> Result<()> {
    let script = [1, 1_000, 3_000_000].map(|n| format!("{PERFEX} spin {n:012} 2>&1")).join("; ");
    let mut first: Option<Vec<_>> = None;
    for source in ["kvm", "perf", "module"] {
        let ended = run(source, &[], &script)?;
        ended.expect_status(0)?;
        let printed = counts::parse(&String::from_utf8_lossy(&ended.stdout))?;
        let events: Vec<_> = printed.into_iter().map(|counts| counts.events).collect();
        ensure!(events.len() == 3, "source {source}: {} counts printed{ended}", events.len());
        let first = first.get_or_insert_with(|| events.clone());
        ensure!(events == *first, "source {source}: {events:?}, source kvm: {first:?}");
    }
    Ok(())
}

/// In the guest perf has the counters before and after, and is refused them meanwhile; and the driver can be unloaded. A
/// program has its counters before perfex executes it; it gives them back some time after its end, for which perf tries again.
pub(super) fn beside_perf() -> Result<()> {
    let layout = Layout::open()?;
    let perf = layout.perf().with_context(|| format!("perf is not there; {}", layout.remedy()))?;
    let script = "stat() { perf stat -x, -e instructions:u -- spin 1000000 2>&1 | grep instructions; }\n\
         stat\n\
         perfex -e 0x004100C0 spin --seconds 3600 2>/dev/null &\n\
         until pidof spin > /dev/null; do sleep 0.1; done\n\
         stat\n\
         kill $(pidof spin); wait\n\
         for again in $(seq 50); do case $(stat) in [0-9]*) break;; *) sleep 0.1;; esac; done\n\
         stat\n\
         rmmod perfctr && echo unloaded\n\
         stat";
    let ended = run("kvm", &[format!("{}:/usr/bin/perf", perf.display())], script)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let counted = |line: &&str| line.split(',').next().and_then(|count| count.parse::<u64>().ok());
    let lines: Vec<&str> = said.lines().collect();
    let [before, meanwhile, after, "unloaded", unloaded] = lines[..] else {
        anyhow::bail!("not what was asked{ended}")
    };
    let alone = counted(&before);
    ensure!(alone.is_some_and(|count| count >= 4_000_000), "before: {before}");
    ensure!(counted(&meanwhile).is_none(), "perf counted while the driver had the counters: {meanwhile}");
    ensure!(
        counted(&after) == alone && counted(&unloaded) == alone,
        "afterwards: {after}, {unloaded}; before: {before}"
    );
    Ok(())
}

/// What makes no sense with it, and that KVM's counters are not there for two.
pub(super) fn refusals() -> Result<()> {
    let refused = |options: &[&str], words: &[&str]| -> Result<()> {
        let mut arguments = vec!["run", "--source", "kvm"];
        arguments.extend(options);
        arguments.extend(["--", "true"]);
        perfvisor::run(arguments, b"", COMMAND_LIMIT)?.expect_refusal(RUN_FAILED, words)
    };
    refused(&["--pmu", "k8"], &["--source kvm", "--pmu k8"])?;
    refused(&["--pmu-registers", "off"], &["--pmu-registers"])
}
