//! CPUs on which counters may not be used. No guest has any, so the driver is loaded anew with the parameter that
//! says so, and once more without it.

#![allow(unsafe_code)] // Waiting for a signal.

use std::ffi::c_int;
use std::ptr::null_mut;

use anyhow::{Context, Result, bail, ensure};
use libvperfctr::layout::{CpuControl, VperfctrControl};
use libvperfctr::{Driver, Vperfctr};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tests::event::INSTRUCTIONS;
use tests::workload::spin;

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::interrupting::{SIGNAL, twice};
use crate::loaded::Loaded;
use crate::measured::{INSTRUCTIONS_AT, Measured, control};
use crate::older;

pub(super) const CHECKS: &[Check] = &[Check { name: "forbidden-cpus", run: checks }];

fn checks() -> Result<()> {
    let before = Driver::query()?;
    ensure!(before.cpus.iter().count() > 1, "there is one CPU, which cannot be forbidden");
    equal("cpus_forbidden without the parameter", before.forbidden.iter().count(), 0)?;
    let loaded = Loaded::with("forbidden=1")?;
    // Each in a thread of its own: they change what signals and CPUs it has.
    for (what, check) in [
        ("what is reported", reported as fn() -> Result<()>),
        ("affinity", affinity),
        ("a thread that is moved", moved),
        ("a thread that goes on where it may not", resumed),
    ] {
        std::thread::spawn(check).join().ok().context("panicked").and_then(|done| done).context(what)?;
    }
    loaded.again("")?;
    equal("cpus_forbidden afterwards", Driver::query()?.forbidden.iter().count(), 0)?;
    // Nonsense is refused: it is out, and back at the drop.
    equal("forbidden=nonsense", loaded.again("forbidden=nonsense").is_err(), true)
}

fn reported() -> Result<()> {
    equal("cpus_forbidden", Driver::query()?.forbidden.iter().collect::<Vec<_>>(), vec![1])?;
    let control = CpuControl { tsc_on: 1, ..CpuControl::default() };
    refused("global CONTROL", older::global_control(older::device()?, 1, &control), Errno::INVAL)
}

fn go_to(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    Ok(sched_setaffinity(None, &set)?)
}

fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// The TSC alone.
fn tsc() -> VperfctrControl {
    let cpu_control = CpuControl { tsc_on: 1, ..CpuControl::default() };
    VperfctrControl { cpu_control, ..VperfctrControl::default() }
}

/// "If any of the programmable counters are enabled, then the thread's CPU affinity mask is adjusted"
fn affinity() -> Result<()> {
    go_to(&[0, 1])?;
    let state = Vperfctr::create()?;
    equal("CPUs after creat", allowed()?, vec![0, 1])?;
    state.control(&tsc())?;
    equal("CPUs with the TSC", allowed()?, vec![0, 1])?;
    state.control(&control())?;
    equal("CPUs with counters", allowed()?, vec![0])?;
    Measured { state }.is_exact()?;

    let state = Vperfctr::open(0, false)?;
    state.stop()?;
    go_to(&[1])?;
    refused("counters where no CPU is left", state.control(&control()), Errno::INVAL)?;
    equal("CPUs then", allowed()?, vec![1])?;
    state.control(&tsc())?;
    let before = state.sums()?;
    spin(1000);
    ensure!(state.sums()?.tsc > before.tsc, "the TSC stands still on a forbidden CPU");
    go_to(&[0, 1])?;
    older::control(&state_by_ioctl()?, &control())?;
    equal("CPUs after the older interface's CONTROL", allowed()?, vec![0])
}

fn state_by_ioctl() -> Result<Vperfctr> {
    older::open(older::nr::OPEN, 0)
}

fn block(signal: c_int) -> libc::sigset_t {
    // SAFETY: a set made here.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut::<libc::sigset_t>());
        set
    }
}

/// Whether one of the blocked signals has come.
fn came(set: &libc::sigset_t) -> bool {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: pointers to what is here.
    unsafe { libc::sigtimedwait(set, null_mut(), &now) > 0 }
}

/// "marks the counters as stopped and sends a SIGILL to the thread"
fn moved() -> Result<()> {
    let signal = block(libc::SIGILL);
    go_to(&[0, 1])?;
    let measured = Measured::start()?;
    measured.is_exact()?;
    for round in 0..20 {
        ensure!(!came(&signal), "round {round}: SIGILL, though it was not moved");
        let before = measured.state.sums()?;
        spin(100_000);
        go_to(&[1])?;
        ensure!(came(&signal), "round {round}: it was moved, and there was no SIGILL");
        equal("cstatus", measured.state.map()?.state().cstatus, 0)?;
        let last = measured.state.sums()?;
        let counted = last.pmc[INSTRUCTIONS_AT] - before.pmc[INSTRUCTIONS_AT];
        ensure!((400_000..500_000).contains(&counted), "round {round}: {counted} instructions");
        spin(1000);
        equal("sums of what is stopped", measured.state.sums()?, last)?;
        go_to(&[0, 1])?;
        spin(1000);
        equal("sums after it is back", measured.state.sums()?, last)?;
        ensure!(!came(&signal), "round {round}: a second SIGILL");
        measured.state.control(&control())?;
    }
    measured.is_exact()
}

/// Stopped by an overflow it may go anywhere; only not on from there.
fn resumed() -> Result<()> {
    let (illegal, _) = (block(libc::SIGILL), block(SIGNAL));
    go_to(&[0, 1])?;
    let state = Vperfctr::create()?;
    state.control(&twice(INSTRUCTIONS, 100_000)?)?;
    spin(30_000);
    let stopped = state.sums()?;
    go_to(&[1])?;
    spin(1000);
    ensure!(!came(&illegal), "SIGILL for the TSC alone");
    equal("counters that are stopped", state.sums()?.pmc, stopped.pmc)?;
    match state.iresume() {
        Ok(()) => ensure!(came(&illegal), "it went on where it may not, and there was no SIGILL"),
        Err(error) => bail!("iresume: {error}"),
    }
    equal("cstatus", state.map()?.state().cstatus, 0)?;
    refused("a second iresume", state.iresume(), Errno::PERM)?;
    equal("sums", state.sums()?.pmc, stopped.pmc)
}
