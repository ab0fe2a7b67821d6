//! Register writes of the host module at a vCPU's switches: none, when the control that was there comes back.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::event::{BRANCHES, INSTRUCTIONS};

use super::dump::{self, RUNNING};
use crate::case::{Case, Evidence, Setting, Waiting, no_copies, single};
use crate::confinement;
use crate::dump::{Dump, Hardware};
use crate::perfvisor::{self, COMMAND_LIMIT};

pub(crate) const CASE: Case = Case {
    name: "switches",
    copies: no_copies,
    limit: Duration::from_secs(300),
    guest,
    answer,
    tests: || single(host),
};

/// Keeps the machine's threads on one CPU of the lab, and disturbs them there for a second or two: `crowd CPU MACHINE`.
const CROWD: &str = "for command in /proc/[0-9]*/cmdline; do\n\
         if tr '\\0' ' ' < $command | grep -q \"perfvisor run --name=$2 \"; then\n\
             process=${command%/cmdline}\n\
             for thread in $process/task/*; do taskset -p $1 ${thread##*/} > /dev/null || exit 1; done\n\
             found=$process\n\
         fi\n\
     done 2> /dev/null\n\
     [ \"$found\" ] || exit 2\n\
     for i in 1 2; do timeout 2 taskset $1 sh -c 'while :; do :; done' & done\n\
     wait; true";

/// Few enough for the disturbance, whatever the machine.
const SWITCHES: u64 = 20;

fn guest(_: &Setting) -> String {
    dump::running_while_asked()
}

fn answer(waiting: &Waiting<'_>) -> Result<()> {
    ensure!(waiting.question == RUNNING, "nobody knows of '{}'", waiting.question);
    confinement::is_in_force(&Dump::of(waiting.machine)?, waiting.setting.source)?;
    // The first time on a CPU, its counters are programmed.
    for (mask, what) in [("1", "first on CPU 0"), ("2", "first on CPU 1"), ("1", "again"), ("2", "again")] {
        let before = hardware(waiting.machine)?;
        let crowd = ["lab", "exec", "--", "sh", "-c", CROWD, "crowd", mask, waiting.machine];
        perfvisor::run(crowd, b"", COMMAND_LIMIT)?.expect_status(0)?;
        let after = hardware(waiting.machine)?;
        let switches = after.switches - before.switches;
        ensure!(switches >= SWITCHES, "{what}: {switches} switches only");
        let allowed = if what == "again" { 0 } else { 2 };
        let writes = after.switch_writes - before.switch_writes;
        ensure!(writes <= allowed, "{what}: {writes} register writes at {switches} switches");
    }
    Ok(())
}

fn hardware(machine: &str) -> Result<Hardware> {
    let dump = Dump::of(machine)?;
    let [vcpu] = &dump.vcpus[..] else { anyhow::bail!("{} vCPUs, expected 1", dump.vcpus.len()) };
    vcpu.pmu.hardware.context("the module did not count")
}

fn host(evidence: &Evidence) -> Result<()> {
    let counts = evidence.counts()?;
    let [killed] = &counts[..] else { anyhow::bail!("{} counts printed, expected 1", counts.len()) };
    ensure!(killed.of(INSTRUCTIONS)? > 0 && killed.of(BRANCHES)? > 0, "nothing: {killed:?}");
    Ok(())
}
