//! What a state is, and what happens to it by the way.

#![allow(unsafe_code)] // getrusage, and a mapping read while it changes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{CpuState, SumCtrs, VperfctrControl};
use libvperfctr::{Counter, Vperfctr, a_mode};
use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use tests::event::KERNEL_INSTRUCTIONS;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::measured::{INSTRUCTIONS_AT, Measured};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "state-inactive-when-new", run: inactive_when_new },
    Check { name: "state-not-of-new-threads", run: not_of_new_threads },
    Check { name: "state-sampled-while-it-runs", run: sampled_while_it_runs },
    Check { name: "state-moved-by-others", run: moved_by_others },
    Check { name: "state-found-among-many", run: found_among_many },
];

/// "inactive, with all control fields disabled and all counters having the value zero"
fn inactive_when_new() -> Result<()> {
    let state = Vperfctr::create()?;
    spin(1_000_000);
    equal("sums and control", state.read()?, (SumCtrs::default(), VperfctrControl::default()))?;
    equal("mapped state", state.map()?.state(), CpuState::default())?;
    refused("iresume", state.iresume(), Errno::PERM)
}

/// A thread made by one that counts has no state, and what it does is not counted.
fn not_of_new_threads() -> Result<()> {
    const ITERATIONS: u64 = 10_000_000;
    let measured = Measured::start()?;
    let before = measured.state.sums()?;
    let theirs = thread::spawn(|| -> Result<()> {
        refused("read of the new thread's state", Vperfctr::open(0, false)?.read(), Errno::INVAL)?;
        spin(ITERATIONS);
        Measured::start()?.is_exact()
    });
    theirs.join().ok().context("the thread panicked")??;
    let counted = measured.state.sums()?.pmc[INSTRUCTIONS_AT] - before.pmc[INSTRUCTIONS_AT];
    ensure!(
        counted < ITERATIONS * INSTRUCTIONS_PER_ITERATION,
        "{counted} instructions were counted while another thread worked"
    );
    measured.is_exact()
}

/// The sampling timer: sums are brought up to date twice a second at least, also when nothing else does it.
fn sampled_while_it_runs() -> Result<()> {
    const SAMPLES: u32 = 4;
    // Far more than it takes: a busy host takes the CPU away for longer than a sampling interval.
    const LIMIT: Duration = Duration::from_secs(20);
    let measured = Measured::start()?;
    let page = measured.state.map()?;
    let (begun, first) = (Instant::now(), page.sums());
    let (mut samples, mut looks) = (0, 0);
    while samples < SAMPLES {
        let (switched, before) = (switches(), page.sums());
        // Instant asks the vDSO: no system call in this loop.
        let look = Instant::now();
        while page.sums() == before && look.elapsed() < Duration::from_secs(1) {
            spin(1_000);
        }
        let changed = page.sums().pmc[INSTRUCTIONS_AT] != before.pmc[INSTRUCTIONS_AT];
        // What changed at a switch is no sample. Where none came between, only the timer can have done it.
        samples += u32::from(changed && switches() == switched);
        looks += 1;
        ensure!(
            begun.elapsed() < LIMIT,
            "{looks} looks in {LIMIT:?}: the mapped sums changed {samples} times without a switch"
        );
    }
    ensure!(page.sums().tsc > first.tsc, "the TSC's sum did not change");
    measured.is_exact()
}

/// How long it takes to find a thread's state, which each exec in the system does, is no matter of how many there are.
fn found_among_many() -> Result<()> {
    const OTHERS: usize = 250;
    let state = Vperfctr::create()?;
    state.control(&a_mode(false, &[Counter { evntsel: KERNEL_INSTRUCTIONS, escr: 0, pmc: 0 }])?)?;
    // Without the interrupts that come between.
    let cost = || -> Result<u64> {
        let mut least = u64::MAX;
        for _ in 0..25 {
            let before = state.sums()?.pmc[0];
            drop(Vperfctr::open(0, false)?);
            least = least.min(state.sums()?.pmc[0] - before);
        }
        Ok(least)
    };
    let alone = cost()?;
    let (begun, over) = (Barrier::new(OTHERS + 1), Barrier::new(OTHERS + 1));
    let other = || -> Result<()> {
        let state = Vperfctr::create();
        begun.wait();
        over.wait();
        Ok(state?.unlink()?)
    };
    thread::scope(|scope| {
        let start = || thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, other);
        let others = (0..OTHERS).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
        begun.wait();
        let among_many = cost();
        over.wait();
        others.into_iter().try_for_each(|other| other.join().ok().context("a thread panicked")?)?;
        let more = among_many?.saturating_sub(alone);
        ensure!(more < 25, "{alone} instructions alone, {more} more among {OTHERS}");
        Ok(())
    })
}

/// How often the calling thread was switched out.
pub(super) fn switches() -> u64 {
    // SAFETY: all zero is a good rusage, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    (usage.ru_nvcsw + usage.ru_nivcsw) as u64
}

/// "it can execute concurrently with the owner thread": set_cpus_allowed() while states are made, unlinked, and end
/// with their threads.
fn moved_by_others() -> Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let (target, over) = (AtomicI32::new(0), AtomicBool::new(false));
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            ready.wait();
            let mut moves = 0u64;
            while !over.load(Ordering::Relaxed) {
                for &cpu in &cpus {
                    let mut set = CpuSet::new();
                    set.set(cpu);
                    let pid = Pid::from_raw(target.load(Ordering::Relaxed));
                    // Refused when the thread has just ended.
                    moves += u64::from(pid.is_some() && sched_setaffinity(pid, &set).is_ok());
                }
            }
            moves
        });
        ready.wait();
        let outcome = (0..30).try_for_each(|round| -> Result<()> {
            let moved = scope.spawn(|| -> Result<()> {
                target.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
                for _ in 0..10 {
                    Measured::start()?.state.unlink()?;
                }
                // This state goes with its thread.
                Measured::start()?.is_exact_with(&[1, 1_000, 30_000], || ())
            });
            moved.join().ok().context("panicked").and_then(|result| result).context(format!("thread {round}"))
        });
        over.store(true, Ordering::Relaxed);
        let moves = mover.join().ok().context("the mover panicked")?;
        outcome?;
        ensure!(moves > 100, "only {moves} moves");
        Ok(())
    })
}
