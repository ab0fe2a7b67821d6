//! What the host sees of a running guest, and that it agrees with what the guest attributed.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tests::event::{BRANCHES, INSTRUCTIONS};

use super::counted::{PERFEX, agree};
use crate::case::{Case, Evidence, Setting, Test, Waiting, no_copies};
use crate::confinement;
use crate::dump::Dump;
use crate::perfvisor::{self, COMMAND_LIMIT, RUN_FAILED};
use tests::counts;

pub(crate) const CASE: Case =
    Case { name: "dump", copies: no_copies, limit: Duration::from_secs(300), guest, answer, tests };

pub(super) const RUNNING: &str = "running";
const UP_TO_DATE: &str = "up_to_date";

/// What must be counted between two dumps: a fraction of a second's worth even in the slowest lab.
pub(super) const GROWTH: u64 = 100_000;
/// How long that may take on a busy machine.
pub(super) const GROWTH_LIMIT: Duration = Duration::from_secs(30);

/// A program runs while the host looks, is killed, and its counts are printed. It counts from when perfex starts it, which
/// a busy machine does in its own time.
pub(super) fn running_while_asked() -> String {
    format!(
        "{PERFEX} -o /tmp/counts spin --seconds 3600 & perfex=$!\n\
         until pidof spin; do sleep 0.1; done\n\
         ask {RUNNING}\n\
         kill -TERM $(pidof spin)\n\
         wait $perfex; echo \"perfex ended with $?\"\n\
         cat /tmp/counts\n"
    )
}

/// Then nothing runs while the host looks.
fn guest(_: &Setting) -> String {
    format!("{}ask {UP_TO_DATE}\n", running_while_asked())
}

fn answer(waiting: &Waiting<'_>) -> Result<()> {
    match waiting.question {
        RUNNING => running(waiting),
        UP_TO_DATE => up_to_date(waiting),
        other => anyhow::bail!("nobody knows of '{other}'"),
    }
}

fn tests() -> Vec<Test> {
    vec![Test { name: String::new(), check: Box::new(host) }]
}

fn running(waiting: &Waiting<'_>) -> Result<()> {
    let mut earlier = Dump::of(waiting.machine)?;
    ensure!(earlier.vcpus.len() == waiting.setting.vcpus as usize, "{} vCPUs", earlier.vcpus.len());
    for _ in 0..3 {
        earlier = grown(waiting.machine, &earlier)?;
    }
    confinement::is_in_force(&earlier, waiting.setting.source)?;
    same_name_is_refused(waiting.machine)?;
    let table = perfvisor::run(["dump", waiting.machine], b"", COMMAND_LIMIT)?;
    table.expect_status(0)?;
    let text = String::from_utf8_lossy(&table.stdout).to_lowercase();
    ensure!(text.contains("4100c0"), "the table does not name event 0x004100C0{table}");
    ensure!(text.contains("a seccomp filter on each thread, landlock"), "not confined{table}");
    let list = perfvisor::run(["list"], b"", COMMAND_LIMIT)?;
    list.expect_status(0)?;
    ensure!(String::from_utf8_lossy(&list.stdout).contains(waiting.machine), "not in the list{list}");
    Ok(())
}

/// The first dump after `earlier` in which both events have grown.
fn grown(machine: &str, earlier: &Dump) -> Result<Dump> {
    let end = Instant::now() + GROWTH_LIMIT;
    loop {
        let later = Dump::of(machine)?;
        nothing_shrank(earlier, &later)?;
        match grew(earlier, &later) {
            Ok(()) => return Ok(later),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Every total of every vCPU stays or grows.
fn nothing_shrank(earlier: &Dump, later: &Dump) -> Result<()> {
    for (before, after) in earlier.vcpus.iter().zip(&later.vcpus) {
        let vcpu = before.index;
        ensure!(
            before.pmu.tsc <= after.pmu.tsc,
            "vCPU {vcpu}: TSC {} after {}",
            after.pmu.tsc,
            before.pmu.tsc
        );
        for event in &before.pmu.events {
            let now = after.pmu.events.iter().find(|now| now.evntsel == event.evntsel);
            let now = now.with_context(|| format!("vCPU {vcpu}: event {:#x} is gone", event.evntsel))?.total;
            ensure!(
                event.total <= now,
                "vCPU {vcpu}: event {:#x}: {now} after {}",
                event.evntsel,
                event.total
            );
        }
    }
    Ok(())
}

/// Both events, somewhere.
fn grew(earlier: &Dump, later: &Dump) -> Result<()> {
    let (before, after) = (earlier.totals(), later.totals());
    for event in [INSTRUCTIONS, BRANCHES] {
        let total = |totals: &std::collections::BTreeMap<u32, u64>| totals.get(&event).copied().unwrap_or(0);
        let growth = total(&after) - total(&before);
        ensure!(growth >= GROWTH, "event {event:#x} grew by {growth} although a program is running");
    }
    Ok(())
}

/// The running machine is not disturbed by a second of its name: what follows in the guest shows it.
fn same_name_is_refused(machine: &str) -> Result<()> {
    let second = perfvisor::run(["run", "--name", machine, "--", "true"], b"", COMMAND_LIMIT)?;
    second.expect_refusal(RUN_FAILED, &[machine, "already"])
}

/// Nothing is attached, and the totals are the sums of everything perfex has printed in this guest.
fn up_to_date(waiting: &Waiting<'_>) -> Result<()> {
    let dump = Dump::of(waiting.machine)?;
    for vcpu in &dump.vcpus {
        ensure!(
            vcpu.pmu.attached.is_none(),
            "vCPU {}: a state is attached: {:?}",
            vcpu.index,
            vcpu.pmu.attached
        );
    }
    dump.is_complete()?;
    agree(&dump, &counts::parse(waiting.transcript)?)
}

fn host(evidence: &Evidence) -> Result<()> {
    let counts = evidence.counts()?;
    let [killed] = &counts[..] else { anyhow::bail!("{} counts printed, expected 1", counts.len()) };
    ensure!(killed.of(INSTRUCTIONS)? >= GROWTH && killed.of(BRANCHES)? >= GROWTH, "too little: {killed:?}");
    ensure!(evidence.output.contains("killed by signal 15"), "perfex does not say what killed the program");
    ensure!(evidence.output.contains("perfex ended with 1\n"), "perfex's status is not 1");
    Ok(())
}
