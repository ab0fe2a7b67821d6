//! Global mode: counters of whole CPUs, for root.

#![allow(unsafe_code)] // Becoming somebody else, for one thread.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{CpuControl, SumCtrs};
use libvperfctr::{Driver, Vperfctr};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use tests::event::{INSTRUCTIONS, KERNEL_INSTRUCTIONS};
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::measured::{Measured, control};
use crate::older::{self, nr};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "global-counts-cpus", run: counts_cpus },
    Check { name: "global-threads-excluded", run: threads_excluded },
    Check { name: "global-refusals", run: refusals },
    Check { name: "global-not-for-everybody", run: not_for_everybody },
    Check { name: "global-cpu-goes-and-comes", run: cpu_goes_and_comes },
];

/// The TSC, and instructions in user mode and in the kernel.
fn instructions() -> CpuControl {
    let mut control = CpuControl { tsc_on: 1, nractrs: 2, ..CpuControl::default() };
    control.pmc_map[1] = 1;
    control.evntsel[..2].copy_from_slice(&[INSTRUCTIONS, KERNEL_INSTRUCTIONS]);
    control
}

/// Global counters, off again at the end.
pub(super) struct Global(fs::File);

impl Global {
    pub(super) fn set_up(cpus: &[u32]) -> Result<Self> {
        let global = Self(older::device()?);
        for (i, &cpu) in (1..).zip(cpus) {
            equal("CPUs set up", older::global_control(&global.0, cpu, &instructions())?, i)?;
        }
        Ok(global)
    }

    /// States of threads that have just ended may not be gone.
    pub(super) fn start(&self) -> Result<i32> {
        let begun = Instant::now();
        loop {
            match older::plain(&self.0, nr::GLOBAL_START, 1_000_000) {
                Err(Errno::BUSY) if begun.elapsed() < Duration::from_secs(5) => {
                    thread::sleep(Duration::from_millis(20));
                }
                answer => return answer.context("START"),
            }
        }
    }

    pub(super) fn stop(&self) -> Result<()> {
        older::plain(&self.0, nr::GLOBAL_STOP, 0).context("STOP").map(|_| ())
    }

    pub(super) fn sums(&self, cpu: u32) -> Result<SumCtrs> {
        older::global_sums(&self.0, cpu)
    }
}

impl Drop for Global {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn pin_to(cpu: u32) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu as usize);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot move to CPU {cpu}"))
}

fn all_cpus() -> Result<Vec<u32>> {
    Ok(Driver::query()?.cpus.iter().collect())
}

/// User instructions that CPU `there` counts while this thread spins, beyond the iterations; the fewest of some
/// tries, as others may run meanwhile.
fn fewest(global: &Global, there: u32, iterations: u64) -> Result<i64> {
    let mut fewest = i64::MAX;
    for _ in 0..6 {
        let before = global.sums(there)?.pmc[0];
        spin(iterations);
        let counted = global.sums(there)?.pmc[0].checked_sub(before).context("a count went backwards")?;
        fewest = fewest.min(counted as i64 - (iterations * INSTRUCTIONS_PER_ITERATION) as i64);
    }
    Ok(fewest)
}

fn counts_cpus() -> Result<()> {
    let cpus = all_cpus()?;
    let global = Global::set_up(&cpus)?;
    equal("sums before the start", global.sums(cpus[0])?, SumCtrs::default())?;
    equal("CPUs that count", global.start()?, cpus.len() as i32)?;
    for &here in &cpus {
        pin_to(here)?;
        fewest(&global, here, 1)?;
        let overhead = fewest(&global, here, 1)?;
        ensure!(overhead >= 0, "CPU {here}: instructions are lost");
        for iterations in [1_000, 300_000, 1_001] {
            let beyond = fewest(&global, here, iterations)?;
            equal(&format!("CPU {here}, beyond {iterations} iterations"), beyond, overhead)?;
        }
        // Elsewhere it is not seen.
        for &there in cpus.iter().filter(|&&there| there != here) {
            let iterations = 1_000_000;
            let beyond = fewest(&global, there, iterations)?;
            ensure!(beyond < -3_000_000, "CPU {there} counted what CPU {here} executed");
        }
    }
    equal("START of what is on", global.start()?, cpus.len() as i32)?;
    for &cpu in &cpus {
        let (before, after) = (global.sums(cpu)?, global.sums(cpu)?);
        ensure!(after.tsc > before.tsc && before.tsc > 0, "CPU {cpu}: the TSC stands still");
        ensure!(after.pmc[1] > 0, "CPU {cpu}: nothing was counted in the kernel");
    }
    global.stop()?;
    let last = global.sums(cpus[0])?;
    ensure!(last.pmc[0] > 0, "the sums are gone");
    spin(1000);
    equal("sums after the stop", global.sums(cpus[0])?, last)?;
    equal("START of what is not set up", global.start()?, 0)
}

fn threads_excluded() -> Result<()> {
    let global = Global::set_up(&[0])?;
    let measured = Measured::start()?;
    refused("START beside a thread's counters", older::plain(&global.0, nr::GLOBAL_START, 0), Errno::BUSY)?;
    measured.is_exact()?;
    measured.state.unlink()?;
    refused("START beside an unlinked state", older::plain(&global.0, nr::GLOBAL_START, 0), Errno::BUSY)?;
    drop(measured);
    equal("CPUs that count", global.start()?, 1)?;
    refused("creat", Vperfctr::open(0, true), Errno::BUSY)?;
    refused("CREAT", older::plain(older::device()?, nr::CREAT, 0), Errno::BUSY)?;
    refused("read of nothing", Vperfctr::open(0, false)?.sums(), Errno::INVAL)?;
    refused("CONTROL of what is on", older::global_control(&global.0, 0, &instructions()), Errno::BUSY)?;
    // They are not the descriptor's.
    drop(older::device()?);
    let before = global.sums(0)?;
    ensure!(global.sums(0)?.tsc > before.tsc, "they have stopped");
    global.stop()?;
    Measured::start()?.is_exact()
}

fn refusals() -> Result<()> {
    let global = Global::set_up(&[])?;
    equal("START of nothing", older::plain(&global.0, nr::GLOBAL_START, 0), Ok(0))?;
    for usec in [1, 9_999] {
        refused("an interval", older::plain(&global.0, nr::GLOBAL_START, usec), Errno::INVAL)?;
    }
    for cpu in [all_cpus()?.len() as u32, 8191, 0x8000_0000, u32::MAX] {
        refused("CONTROL of no CPU", older::global_control(&global.0, cpu, &instructions()), Errno::INVAL)?;
        let words = older::fields(&[(20, 0, cpu)]);
        let read = older::pass(&global.0, nr::GLOBAL_READ, &words, 2, older::ROOM);
        refused("READ of no CPU", read, Errno::INVAL)?;
    }
    let imode = CpuControl { nractrs: 1, nrictrs: 1, ..instructions() };
    refused("i-mode counters", older::global_control(&global.0, 0, &imode), Errno::PERM)?;
    let bad = CpuControl { nractrs: 19, ..instructions() };
    refused("more counters than there are", older::global_control(&global.0, 0, &bad), Errno::INVAL)?;
    equal("START after refusals", older::plain(&global.0, nr::GLOBAL_START, 0), Ok(0))?;
    equal("a good one", older::global_control(&global.0, 0, &instructions()), Ok(1))?;
    equal("nothing to count", older::global_control(&global.0, 0, &CpuControl::default()), Ok(0))
}

fn not_for_everybody() -> Result<()> {
    const NOBODY: libc::c_long = 65_534;
    let device = older::device()?;
    // SAFETY: the system call, unlike the C library's function, changes this thread alone. It ends with the check.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    ensure!(done == 0, "cannot become nobody");
    // The kernel makes the whole process unfit for dumps then, which later checks are about.
    // SAFETY: no memory involved.
    let done = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    ensure!(done == 0, "PR_SET_DUMPABLE");
    refused("CONTROL", older::global_control(&device, 0, &instructions()), Errno::PERM)?;
    refused("READ", older::pass(&device, nr::GLOBAL_READ, &[], 0, older::ROOM), Errno::PERM)?;
    refused("START", older::plain(&device, nr::GLOBAL_START, 0), Errno::PERM)?;
    refused("STOP", older::plain(&device, nr::GLOBAL_STOP, 0), Errno::PERM)?;
    // His own thread is his.
    let state = older::open(nr::CREAT, 0).context("the device, opened by nobody")?;
    older::control(&state, &control())?;
    Measured { state }.is_exact()
}

/// What a CPU counted stays while it is offline, and grows when it is back: by as much as is executed there.
fn cpu_goes_and_comes() -> Result<()> {
    /// More than programs of the guest's own execute meanwhile.
    const ITERATIONS: u64 = 20_000_000;
    const COUNTED: u64 = ITERATIONS * INSTRUCTIONS_PER_ITERATION;
    let cpu = all_cpus()?.into_iter().max().filter(|&cpu| cpu > 0).context("one CPU, which has to stay")?;
    let switch = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    let (online, offline) = ((&*switch, "1"), (&*switch, "0"));
    let turn = |(path, to): (&str, &str)| fs::write(path, to).with_context(|| format!("{path}: to {to}"));
    let work_there = || -> Result<()> {
        pin_to(cpu)?;
        spin(ITERATIONS);
        pin_to(0)
    };
    let global = Global::set_up(&[cpu])?;
    equal("CPUs that count", global.start()?, 1)?;
    work_there()?;
    let before = global.sums(cpu)?;
    ensure!(before.pmc[0] >= COUNTED, "{} of {COUNTED} user instructions", before.pmc[0]);
    turn(offline)?;
    let words = older::fields(&[(20, 0, cpu)]);
    let gone = older::pass(&global.0, nr::GLOBAL_READ, &words, 2, older::ROOM);
    turn(online)?;
    refused("READ of a CPU that is offline", gone, Errno::INVAL)?;
    // What was counted is all there, and not once more: a CPU that starts is busy in the kernel alone.
    let back = global.sums(cpu)?;
    let kept = before.pmc[0]..before.pmc[0] + COUNTED / 2;
    ensure!(kept.contains(&back.pmc[0]), "{before:?} before, {back:?} after");
    ensure!(back.tsc > before.tsc && back.pmc[1] > before.pmc[1], "{before:?} before, {back:?} after");
    work_there()?;
    let grown = global.sums(cpu)?.pmc[0] - back.pmc[0];
    ensure!((COUNTED..COUNTED + COUNTED / 2).contains(&grown), "{grown} of {COUNTED} user instructions");
    // Off while it is offline.
    let before = global.sums(cpu)?;
    turn(offline)?;
    let stopped = global.stop();
    turn(online)?;
    stopped?;
    let last = global.sums(cpu)?;
    ensure!(last.tsc >= before.tsc && last.pmc[0] >= before.pmc[0], "{before:?} before, {last:?} after");
    work_there()?;
    equal("sums of what is stopped", global.sums(cpu)?, last)?;
    pin_to(cpu)?;
    Measured::start()?.is_exact()
}
