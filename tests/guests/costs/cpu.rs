//! The CPU on which something is done.

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Where everything is done that says nothing else.
pub(crate) fn on_first_cpu() -> Result<()> {
    on_cpu(0)
}

pub(crate) fn on_cpu(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).context("sched_setaffinity")
}

/// The guest's.
pub(crate) fn cpus() -> Result<usize> {
    // Not the ones this thread may use, which are fewer.
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").context("online CPUs")?;
    let last = online.trim().rsplit(['-', ',']).next().unwrap_or_default();
    Ok(last.parse::<usize>().with_context(|| format!("online CPUs: '{online}'"))? + 1)
}
