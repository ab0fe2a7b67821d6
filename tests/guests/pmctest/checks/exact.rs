//! Counts are exact, whatever the scheduler does.

use std::cell::Cell;
use std::sync::Barrier;
use std::thread;

use anyhow::{Context, Result, ensure};
use libvperfctr::{Counter, Vperfctr, a_mode};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity, sched_yield};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::low_level::LowLevel;
use crate::measured::Measured;
use crate::placed::only;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "exact-alone", run: alone },
    Check { name: "exact-across-sleeps", run: across_sleeps },
    Check { name: "exact-migrating", run: migrating },
    Check { name: "exact-threads-of-one-cpu", run: threads_of_one_cpu },
    Check { name: "exact-threads-everywhere", run: threads_everywhere },
    Check { name: "exact-more-events-than-counters", run: more_events_than_counters },
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

/// Moved to every CPU inside each measurement.
fn migrating() -> Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    ensure!(cpus.len() > 1, "there is one CPU, and nowhere to move to");
    let sets: Vec<CpuSet> = cpus.iter().map(|&cpu| only(cpu)).collect();
    // The same instructions in each measurement, so the verdict waits.
    let elsewhere = Cell::new(0);
    Measured::start()?.is_exact_with(&LENGTHS, || {
        for (set, &cpu) in sets.iter().zip(&cpus) {
            let moved = sched_setaffinity(None, set).is_ok();
            elsewhere.set(elsewhere.get() + u32::from(!moved | (sched_getcpu() != cpu)));
        }
    })?;
    ensure!(elsewhere.get() == 0, "{} moves led elsewhere", elsewhere.get());
    Ok(())
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
            LENGTHS.into_iter().for_each(spin);
        });
        for (i, thread) in threads.into_iter().enumerate() {
            let outcome = thread.join();
            ensure!(outcome.is_ok(), "thread {i} panicked");
            outcome.expect("just seen").with_context(|| format!("thread {i} of {number}"))?;
        }
        Ok(())
    })
}

/// User mode, kernel mode, both: of instructions, branches, cycles.
const LEVELS: [[u32; 3]; 3] = [
    [0x0041_00C0, 0x0042_00C0, 0x0043_00C0],
    [0x0041_00C2, 0x0042_00C2, 0x0043_00C2],
    [0x0041_0076, 0x0042_0076, 0x0043_0076],
];

/// Threads that take turns with nine events, more than a host has counters, so that each pushes out what others
/// need: one thread for each choice of four. What a thread did in user mode and in the kernel is what it did, to the event.
fn more_events_than_counters() -> Result<()> {
    let measure = |id: usize| -> Result<()> {
        let [user, kernel, both] = LEVELS[id % 2];
        let events = [user, kernel, both, LEVELS[2][id % 3]];
        let counter = |(pmc, evntsel)| Counter { evntsel, escr: 0, pmc };
        let state = Vperfctr::create()?;
        state.control(&a_mode(true, &(0..).zip(events).map(counter).collect::<Vec<_>>())?)?;
        let each = [INSTRUCTIONS_PER_ITERATION, BRANCHES_PER_ITERATION][id % 2];
        let mut overhead = None;
        for round in 0..20 {
            let iterations = 1 + round * 1_000;
            let before = state.sums()?;
            spin(iterations);
            sched_yield();
            spin(iterations);
            let after = state.sums()?;
            let [user, kernel, both] = [0, 1, 2].map(|i| after.pmc[i] - before.pmc[i]);
            // Registers are read one after another, and those of kernel mode count the driver in between.
            ensure!(
                user + kernel == both || LowLevel::here() == LowLevel::Registers,
                "round {round}: {user} and {kernel} make {both}"
            );
            let beyond = user.checked_sub(2 * iterations * each).context("events are lost")?;
            // The first round takes the branches of a first time.
            let expected = if round == 0 { beyond } else { *overhead.get_or_insert(beyond) };
            ensure!(beyond == expected, "round {round}: {beyond} beyond the iterations, expected {expected}");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|id| scope.spawn(move || measure(id))).collect();
        for (id, thread) in threads.into_iter().enumerate() {
            let outcome = thread.join().ok().context("panicked");
            outcome.and_then(|result| result).with_context(|| format!("thread {id}"))?;
        }
        Ok(())
    })
}
