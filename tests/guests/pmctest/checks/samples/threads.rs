//! Samples of threads that are switched, moved and sleep.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use tests::event::{BRANCHES, INSTRUCTIONS, KERNEL_INSTRUCTIONS};
use tests::workload::spin;

use crate::check::Check;
use crate::expect::equal;
use crate::measured::Measured;
use crate::placed::{only, with_a_rival_and_alone};
use crate::sampled::{Sampled, in_the_loop, sampling};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "samples-threads-of-one-cpu", run: threads_of_one_cpu },
    Check { name: "samples-threads-everywhere", run: threads_everywhere },
    Check { name: "samples-migrating", run: migrating },
    Check { name: "samples-in-the-scheduler", run: in_the_scheduler },
];

fn threads_of_one_cpu() -> Result<()> {
    together(4, Some(0))
}

fn threads_everywhere() -> Result<()> {
    together(6, None)
}

/// Threads with periods and buffers of their own, and one that only counts, side by side.
fn together(number: u32, cpu: Option<usize>) -> Result<()> {
    let start = Barrier::new(number as usize + 1);
    let placed = || cpu.map_or(Ok(()), |cpu| sched_setaffinity(None, &only(cpu)));
    let sampled = |id: u32| -> Result<()> {
        placed()?;
        let period = 5_003 + 997 * id;
        let sampled = Sampled::start(3, [INSTRUCTIONS, BRANCHES][id as usize % 2], period);
        start.wait();
        for _ in 0..20 {
            spin(10_000);
            sched_yield();
        }
        let samples = sampled?.finish(period)?;
        equal("lost samples", samples.lost, 0)?;
        ensure!(samples.records.len() >= 200_000 / period as usize, "only {} samples", samples.records.len());
        Ok(())
    };
    let counting = || -> Result<()> {
        placed()?;
        let measured = Measured::start();
        start.wait();
        measured?.is_exact_with(&[1, 100_000, 300_000], sched_yield)
    };
    thread::scope(|scope| {
        let mut threads: Vec<_> = (0..number).map(|id| scope.spawn(move || sampled(id))).collect();
        threads.push(scope.spawn(counting));
        for (id, thread) in threads.into_iter().enumerate() {
            let outcome = thread.join().ok().context("panicked");
            outcome.and_then(|result| result).with_context(|| format!("thread {id}"))?;
        }
        Ok(())
    })
}

/// A period goes on where the thread goes, and its sample says where that was.
fn migrating() -> Result<()> {
    const PERIOD: u32 = 9_973;
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let mut sampled = Sampled::start(3, INSTRUCTIONS, PERIOD)?;
    let mut records = Vec::new();
    for _ in 0..20 {
        for &cpu in &cpus {
            sched_setaffinity(None, &only(cpu))?;
            spin(7_001);
            let taken = sampled.drain();
            let strange = taken.iter().find(|record| in_the_loop(record.pc) && record.cpu != cpu as u32);
            ensure!(strange.is_none(), "on CPU {cpu}: {strange:?}");
            records.extend(taken);
        }
    }
    let samples = sampled.finish_after(records, PERIOD)?;
    equal("lost samples", samples.lost, 0)?;
    ensure!(samples.records.len() >= 40, "only {} samples", samples.records.len());
    Ok(())
}

/// Instructions of the kernel, with periods that end all along the way into a sleep and out of it, also where only
/// the switch finds the overflow.
fn in_the_scheduler() -> Result<()> {
    with_a_rival_and_alone(sleeps)
}

fn sleeps() -> Result<()> {
    let mut sampled = Sampled::new(3)?;
    let mut recorded = 0;
    for round in 0..50 {
        let period = 200 + round * 93;
        sampled.state.control(&sampling(KERNEL_INSTRUCTIONS, period)?)?;
        thread::sleep(Duration::from_micros(100));
        recorded += sampled.finish(period).with_context(|| format!("period {period}"))?.records.len();
    }
    ensure!(recorded > 30, "only {recorded} samples in 50 sleeps: the periods are too long");
    sampled.state.unlink()?;
    Ok(())
}
