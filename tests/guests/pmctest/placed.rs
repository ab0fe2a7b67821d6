//! Which CPU a thread runs on, and who else does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity, sched_yield};
use tests::workload::spin;

/// That CPU and no other.
pub(crate) fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// Do `work` on the first CPU, beside another thread there and then alone: what is switched to is that thread, or the
/// idle thread.
pub(crate) fn with_a_rival_and_alone(work: impl Fn() -> Result<()>) -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let rival = scope.spawn(|| -> Result<()> {
            sched_setaffinity(None, &only(0))?;
            while !over.load(Ordering::Relaxed) {
                spin(2_000);
                sched_yield();
            }
            Ok(())
        });
        let outcome = work().context("with a rival");
        over.store(true, Ordering::Relaxed);
        rival.join().ok().context("the rival panicked")??;
        outcome
    })?;
    work().context("alone")
}
