//! Overflows of threads that are switched, sleep, end and become others.

#![allow(unsafe_code)] // Code between fork and exec.

use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::VperfctrControl;
use libvperfctr::{ControlBuilder, Vperfctr};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use tests::event::{BRANCHES, INSTRUCTIONS, KERNEL_INSTRUCTIONS};
use tests::workload::spin;

use crate::check::Check;
use crate::expect::equal;
use crate::interrupting::{Interrupted, SIGNAL, Then, interrupting, sleep_is_cut_short, twice};
use crate::measured::Measured;
use crate::placed::{only, with_a_rival_and_alone};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "overflow-threads-of-one-cpu", run: threads_of_one_cpu },
    Check { name: "overflow-threads-everywhere", run: threads_everywhere },
    Check { name: "overflow-migrating", run: migrating },
    Check { name: "overflow-in-the-scheduler", run: in_the_scheduler },
    Check { name: "overflow-thread-end", run: thread_end },
    Check { name: "overflow-after-exec", run: after_exec },
];

/// A child that begins with an i-mode counter whose signal nobody handles.
pub(crate) const EXEC_DIES: &str = "exec-dies";

fn threads_of_one_cpu() -> Result<()> {
    together(4, Some(0))
}

fn threads_everywhere() -> Result<()> {
    together(6, None)
}

/// Threads with periods of their own, and one that only counts, side by side.
fn together(number: u32, cpu: Option<usize>) -> Result<()> {
    let start = Barrier::new(number as usize + 1);
    let placed = || cpu.map_or(Ok(()), |cpu| sched_setaffinity(None, &only(cpu)));
    let interrupted = |id: u32| -> Result<()> {
        placed()?;
        let period = 20_011 + 9_973 * id;
        let interrupted = Interrupted::start(Then::Resume, [INSTRUCTIONS, BRANCHES][id as usize % 2], period);
        start.wait();
        for _ in 0..50 {
            spin(10_000);
            sched_yield();
        }
        let overflows = interrupted?.is_exact(period)?;
        ensure!(overflows >= 500_000 / u64::from(period), "only {overflows} overflows");
        Ok(())
    };
    let counting = || -> Result<()> {
        placed()?;
        let measured = Measured::start();
        start.wait();
        measured?.is_exact_with(&[1, 100_000, 300_000], sched_yield)
    };
    thread::scope(|scope| {
        let mut threads: Vec<_> = (0..number).map(|id| scope.spawn(move || interrupted(id))).collect();
        threads.push(scope.spawn(counting));
        for (id, thread) in threads.into_iter().enumerate() {
            let outcome = thread.join().ok().context("panicked");
            outcome.and_then(|result| result).with_context(|| format!("thread {id}"))?;
        }
        Ok(())
    })
}

/// A period goes on where the thread goes.
fn migrating() -> Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cpus: Vec<CpuSet> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).map(only).collect();
    let period = 99_991;
    let interrupted = Interrupted::start(Then::Resume, INSTRUCTIONS, period)?;
    for _ in 0..20 {
        for cpu in &cpus {
            spin(7_001);
            sched_setaffinity(None, cpu)?;
        }
    }
    let overflows = interrupted.is_exact(period)?;
    ensure!(overflows >= 5, "only {overflows} overflows");
    Ok(())
}

/// Instructions of the kernel, with periods that end all along the way into a sleep, also where the scheduler has
/// interrupts off and only the switch finds the overflow: signalled once, whenever it was, and while it still matters.
fn in_the_scheduler() -> Result<()> {
    with_a_rival_and_alone(|| sleeps(150))
}

/// Instructions of the kernel, in i-mode alone.
pub(crate) fn in_kernel(tsc_on: bool, period: u32) -> Result<VperfctrControl> {
    let builder = ControlBuilder::new().i_mode(interrupting(KERNEL_INSTRUCTIONS, 2), period).signal(SIGNAL);
    Ok(if tsc_on { builder.tsc() } else { builder }.build()?)
}

fn sleeps(rounds: u32) -> Result<()> {
    let interrupted = Interrupted::new(Then::Leave)?;
    let (mut signalled, mut cut_short) = (0, 0);
    for round in 0..rounds {
        let period = 200 + round * 31;
        interrupted.state.control(&in_kernel(round % 2 == 0, period)?)?;
        let cut = sleep_is_cut_short(10);
        let before_the_end = interrupted.seen();
        interrupted.state.stop()?;
        let (at_the_end, count) = (interrupted.seen(), interrupted.state.sums()?.pmc[0]);
        let signals = before_the_end.signals + at_the_end.signals;
        ensure!(
            signals == u64::from(count >= u64::from(period)),
            "round {round}, period {period}, {count} instructions, sleep cut short: {cut}; seen before the stop \
             {before_the_end:?}, at the stop {at_the_end:?}, state {:?}",
            interrupted.page()?
        );
        equal("strange signals", before_the_end.strange + at_the_end.strange, 0)?;
        signalled += signals;
        cut_short += u64::from(cut);
    }
    ensure!(
        signalled > u64::from(rounds) / 2,
        "only {signalled} overflows in {rounds} sleeps: the periods are too long"
    );
    ensure!(cut_short > 0, "no sleep was cut short by its signal");
    Ok(())
}

/// Threads end with an overflow somewhere on the way: nobody else hears of it.
fn thread_end() -> Result<()> {
    const ROUNDS: u32 = 200;
    let bystander = Interrupted::new(Then::Resume)?;
    let mut overflows = 0;
    for round in 0..ROUNDS {
        let period = 300 + 41 * round;
        let ended = thread::spawn(move || -> Result<Vperfctr> {
            let interrupted = ManuallyDrop::new(Interrupted::new(Then::Leave)?);
            interrupted.state.control(&in_kernel(true, period)?)?;
            Ok(Vperfctr::open(0, false)?)
        });
        let state = ended.join().ok().context("the thread panicked")??;
        overflows += u32::from(state.map()?.sums().pmc[0] >= u64::from(period));
    }
    ensure!(overflows > ROUNDS / 4, "only {overflows} of {ROUNDS} threads had an overflow");
    equal("signals of other threads", bystander.seen().signals, 0)?;
    Measured { state: restarted(&bystander)? }.is_exact()
}

fn restarted(interrupted: &Interrupted) -> Result<Vperfctr> {
    interrupted.state.control(&crate::measured::control())?;
    Ok(Vperfctr::open(0, false)?)
}

/// Counters survive an exec; handlers don't, so the new program dies of the signal.
fn after_exec() -> Result<()> {
    let mut child = Command::new("/proc/self/exe");
    child.args(["--child", EXEC_DIES]);
    // SAFETY: only system calls between fork and exec.
    unsafe {
        child.pre_exec(|| {
            let errno = |error: libvperfctr::Error| io::Error::from(error.errno());
            let state = Vperfctr::open(0, true).map_err(errno)?;
            // Far beyond what an exec and a start take.
            let control = twice(INSTRUCTIONS, 1 << 30).map_err(|_| io::ErrorKind::Other)?;
            state.control(&control).map_err(errno)
        });
    }
    let begun = Instant::now();
    let status = child.status().context("the child did not start")?;
    equal("what the child died of", status.signal(), Some(SIGNAL))
        .with_context(|| format!("after {:?}, with status {status}", begun.elapsed()))
}

/// In the child after the exec.
pub(crate) fn exec_dies() -> Result<()> {
    let state = Vperfctr::open(0, false)?;
    state.read().context("reading the counters made before the exec")?;
    state.control(&twice(INSTRUCTIONS, 100_000)?)?;
    spin(1_000_000);
    anyhow::bail!("the overflow was not signalled")
}
