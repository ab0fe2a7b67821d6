//! What a machine's threads may do on the lab's host, as the kernel has it.

use anyhow::{Context, Result, ensure};

use crate::dump::{Confinement, Dump};
use crate::perfvisor::{self, COMMAND_LIMIT};

/// Says who may have perf events, then five lines of each thread: each thread's in one read, and none if it ends meanwhile.
const LOOK: &str = "cat /proc/sys/kernel/perf_event_paranoid
    for task in /proc/$0/task/*; do
        grep -E '^(Name|CapPrm|CapEff|NoNewPrivs|Seccomp):' $task/status 2> /dev/null
    done
    true";

/// What events of a guest's kernel mode need at this `kernel.perf_event_paranoid`: the capability's number and name. The third level
/// is Debian's.
fn needed(paranoid: i32) -> Option<(u32, &'static str)> {
    match paranoid {
        ..=1 => None,
        2 => Some((38, "PERFMON")),
        3.. => Some((21, "SYS_ADMIN")),
    }
}

/// Each thread of the VMM of `dump`, which counts by `source`, is confined as is designed, and the dump says the same.
pub(crate) fn is_in_force(dump: &Dump, source: &str) -> Result<()> {
    let pid = dump.pid.to_string();
    let ended = perfvisor::run(["lab", "exec", "--", "sh", "-c", LOOK, &pid], b"", COMMAND_LIMIT)?;
    ended.expect_status(0)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let (paranoid, threads) = said.split_once('\n').context("nothing said")?;
    let kept = needed(paranoid.parse()?).filter(|_| source == "perf");
    let lines: Vec<&str> = threads.lines().collect();
    let mut vcpus = 0;
    for thread in lines.chunks(5) {
        vcpus += usize::from(
            is_confined(thread, kept.map_or(0, |(number, _)| 1 << number))
                .with_context(|| format!("a thread{ended}"))?,
        );
    }
    ensure!(vcpus == dump.vcpus.len(), "{vcpus} threads of vCPUs{ended}");
    let Confinement { no_new_privs, seccomp, landlock, capabilities } =
        dump.confinement.as_ref().context("the dump has no line about confinement")?;
    let kept: Vec<&str> = kept.iter().map(|(_, name)| *name).collect();
    // The lab's kernels, Debian's, have Landlock in force.
    ensure!(
        *no_new_privs && *seccomp && *capabilities == kept && landlock.is_some_and(|version| version > 0),
        "the dump says {:?}, expected the capabilities {kept:?}",
        dump.confinement
    );
    Ok(())
}

/// By the lines of one thread, in the kernel's order. True if it is a vCPU's, which may have `kept`.
fn is_confined(thread: &[&str], kept: u64) -> Result<bool> {
    let values: Vec<&str> = thread.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let [name, permitted, effective, no_new_privs, seccomp] = values[..] else {
        anyhow::bail!("not a thread's five lines: {thread:?}")
    };
    // Of the kernel's own work, which runs no code of the VMM.
    if name.starts_with("kvm-") {
        return Ok(false);
    }
    let is_vcpu = name.starts_with("vcpu");
    let expected = if is_vcpu { kept } else { 0 };
    for set in [permitted, effective] {
        ensure!(u64::from_str_radix(set, 16)? == expected, "{name} has {set}, expected {expected:x}");
    }
    ensure!((no_new_privs, seccomp) == ("1", "2"), "{name} is not confined: {thread:?}");
    Ok(is_vcpu)
}
