//! Counts are exact, whatever the scheduler does.

use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};

use crate::Check;
use crate::measured::Measured;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "exact-alone", run: alone },
    Check { name: "exact-across-sleeps", run: across_sleeps },
    Check { name: "exact-migrating", run: migrating },
    Check { name: "exact-threads-of-one-cpu", run: threads_of_one_cpu },
    Check { name: "exact-threads-everywhere", run: threads_everywhere },
];

/// Lengths long enough to be interrupted now and then, and short enough not to be.
const LENGTHS: [u64; 8] = [1, 10, 3_000_000, 100, 1_000_000, 10_000, 2_000_001, 5];

fn alone() -> Result<()> {
    Measured::start()?.is_exact_with(&LENGTHS, || ())
}

/// Suspended and resumed inside each measurement.
fn across_sleeps() -> Result<()> {
    let measured = Measured::start()?;
    let nap = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    measured.is_exact_with(&LENGTHS, || {
        let _ = rustix::thread::nanosleep(&nap);
    })
}

/// Moved to every CPU inside each measurement. With one CPU it is moved to where it is.
fn migrating() -> Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<CpuSet> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).map(only).collect();
    Measured::start()?.is_exact_with(&LENGTHS, || {
        for cpu in &cpus {
            let _ = sched_setaffinity(None, cpu);
        }
    })
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

fn threads_of_one_cpu() -> Result<()> {
    together(4, Some(0))
}

fn threads_everywhere() -> Result<()> {
    together(6, None)
}

/// Threads with counters of their own, and one without, side by side.
fn together(number: usize, cpu: Option<usize>) -> Result<()> {
    let start = Barrier::new(number + 1);
    let measure = || -> Result<()> {
        if let Some(cpu) = cpu {
            sched_setaffinity(None, &only(cpu))?;
        }
        let measured = Measured::start();
        start.wait();
        measured?.is_exact_with(&LENGTHS, sched_yield)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..number).map(|_| scope.spawn(measure)).collect();
        scope.spawn(|| {
            start.wait();
            LENGTHS.into_iter().for_each(tests::workload::spin);
        });
        for (i, thread) in threads.into_iter().enumerate() {
            let outcome = thread.join();
            ensure!(outcome.is_ok(), "thread {i} panicked");
            outcome.expect("just seen").with_context(|| format!("thread {i} of {number}"))?;
        }
        Ok(())
    })
}
