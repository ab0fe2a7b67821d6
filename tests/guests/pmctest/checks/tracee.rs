//! Counters of other threads: "a thread that is stopped and under ptrace control by the current thread".

#![allow(unsafe_code)] // ptrace, waitpid, and code between fork and exec.

use std::ffi::c_int;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::{SumCtrs, VperfctrControl};
use rustix::event::PollFlags;
use rustix::io::Errno;
use tests::event::INSTRUCTIONS;
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION, spin};

use super::samples::ready;
use crate::check::Check;
use crate::expect::{equal, refused};
use crate::interrupting::{SIGNAL, twice};
use crate::measured::{BRANCHES_AT, INSTRUCTIONS_AT, control};
use crate::sampled::sampling;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "tracee-must-be-stopped-and-traced", run: must_be_stopped_and_traced },
    Check { name: "tracee-open", run: open },
    Check { name: "tracee-control-and-read", run: control_and_read },
    Check { name: "tracee-unlink", run: unlink },
    Check { name: "tracee-iresume", run: iresume },
    Check { name: "tracee-samples", run: samples },
    Check { name: "tracee-exec", run: exec },
    Check { name: "tracee-killed", run: killed },
];

/// A child that stops before each of its [`ROUNDS`].
pub(super) const ROUNDS_ROLE: &str = "tracee-rounds";
/// A child that becomes the other by exec.
pub(super) const EXECS_ROLE: &str = "tracee-execs";

/// Iterations between two stops. The first is there to touch every page, and after the last the loop ends.
const ROUNDS: [u64; 7] = [1, 1, 1_000, 100_000, 1_001, 30_000, 1];
/// The signal that stops the child, and that it never gets.
pub(super) const STOP: c_int = libc::SIGUSR2;

/// In the child.
pub(super) fn rounds() -> Result<()> {
    for iterations in ROUNDS {
        stop_then_spin(iterations);
    }
    // SAFETY: no memory involved.
    unsafe { libc::raise(STOP) };
    Ok(())
}

#[inline(never)]
fn stop_then_spin(iterations: u64) {
    // SAFETY: no memory involved.
    unsafe { libc::raise(STOP) };
    spin(iterations);
}

/// In the child.
pub(super) fn execs() -> Result<()> {
    Err(Command::new("/proc/self/exe").args(["--child", ROUNDS_ROLE]).exec()).context("exec")
}

/// A child under this thread's ptrace.
pub(super) struct Tracee(Child);

impl Tracee {
    /// A child that stands still before its first instruction.
    pub(super) fn start(role: &str) -> Result<Self> {
        Self::start_with(role, |_| ())
    }

    pub(super) fn start_with(role: &str, prepare: impl FnOnce(&mut Command)) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["--child", role]);
        prepare(&mut command);
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>());
                Ok(())
            });
        }
        let tracee = Self(command.spawn()?);
        tracee.stops_with(libc::SIGTRAP)?;
        Ok(tracee)
    }

    pub(super) fn tid(&self) -> i32 {
        self.0.id() as i32
    }

    fn stops_with(&self, signal: c_int) -> Result<()> {
        let mut status = 0;
        // SAFETY: `status` is ours.
        let pid = unsafe { libc::waitpid(self.tid(), &mut status, libc::__WALL) };
        ensure!(
            pid == self.tid() && libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == signal,
            "the child did not stop with signal {signal}, but {status:#x}"
        );
        Ok(())
    }

    fn ptrace(&self, request: libc::c_uint) -> Result<()> {
        // SAFETY: none of the requests made here uses memory of ours.
        let answer = unsafe { libc::ptrace(request, self.tid(), null_mut::<u8>(), null_mut::<u8>()) };
        ensure!(answer == 0, "ptrace request {request}: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Let it go on, without the signal it stopped with.
    fn continue_tracee(&self) -> Result<()> {
        self.ptrace(libc::PTRACE_CONT)
    }

    pub(super) fn continue_until(&self, signal: c_int) -> Result<()> {
        self.continue_tracee()?;
        self.stops_with(signal)
    }

    /// It stands before its first round: what was counted in each must be what it executes, and one constant.
    pub(super) fn is_exact(&self, state: &Vperfctr) -> Result<()> {
        let mut first = None;
        for (round, iterations) in ROUNDS.into_iter().enumerate() {
            let before = state.sums()?;
            self.continue_until(STOP)?;
            let after = state.sums()?;
            equal("mapped sums of a stopped thread", state.map()?.sums(), after)?;
            if round == 0 || round == ROUNDS.len() - 1 {
                continue;
            }
            let beyond = |i: usize, each| counted(i, &before, &after)?.checked_sub(iterations * each);
            let overhead = beyond(INSTRUCTIONS_AT, INSTRUCTIONS_PER_ITERATION)
                .zip(beyond(BRANCHES_AT, BRANCHES_PER_ITERATION))
                .with_context(|| format!("{iterations} iterations: events are lost"))?;
            equal("what is beyond the iterations", overhead, *first.get_or_insert(overhead))?;
            ensure!(after.tsc > before.tsc, "the TSC stood still");
        }
        Ok(())
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn counted(i: usize, before: &SumCtrs, after: &SumCtrs) -> Option<u64> {
    after.pmc[i].checked_sub(before.pmc[i])
}

fn must_be_stopped_and_traced() -> Result<()> {
    let mut child = Command::new("sleep").arg("100").spawn()?;
    let tid = child.id() as i32;
    let seen = (|| {
        refused("a thread that is not traced", Vperfctr::open(tid, true), Errno::SRCH)?;
        let stopped = libvperfctr::trace::Stopped::stop(tid)?;
        let state = Vperfctr::open(tid, true).context("a thread that is stopped and traced")?;
        state.control(&control())?;
        // Its process's other threads are not its tracer.
        let other = thread::scope(|scope| scope.spawn(|| Vperfctr::open(tid, false)).join());
        refused("another thread's tracee", other.expect("it does not panic"), Errno::SRCH)?;
        drop(stopped);
        refused("open of a running thread", Vperfctr::open(tid, false), Errno::SRCH)?;
        refused("control of a running thread", state.control(&control()), Errno::SRCH)?;
        refused("read of a running thread", state.read(), Errno::SRCH)?;
        refused("iresume of a running thread", state.iresume(), Errno::SRCH)?;
        refused("unlink of a running thread", state.unlink(), Errno::SRCH)
    })();
    child.kill()?;
    child.wait()?;
    seen?;

    let tracee = Tracee::start(ROUNDS_ROLE)?;
    tracee.continue_until(STOP)?;
    let state = Vperfctr::open(tracee.tid(), true)?;
    for _ in 1..ROUNDS.len() {
        // Right after the word of its stop, it may still be on its CPU.
        tracee.continue_until(STOP)?;
        state.read().context("a read at once after the stop")?;
    }
    Ok(())
}

fn open() -> Result<()> {
    let tracee = Tracee::start(ROUNDS_ROLE)?;
    let nothing = Vperfctr::open(tracee.tid(), false)?;
    refused("read where there is no state", nothing.read(), Errno::INVAL)?;
    let state = Vperfctr::open(tracee.tid(), true)?;
    let inactive = (SumCtrs::default(), VperfctrControl::default());
    equal("a new state", state.read()?, inactive)?;
    refused("creat where there is a state", Vperfctr::open(tracee.tid(), true), Errno::EXIST)?;
    equal("the state, opened again", Vperfctr::open(tracee.tid(), false)?.read()?, inactive)?;
    tracee.continue_until(STOP)?;
    refused("creat after it ran", Vperfctr::open(tracee.tid(), true), Errno::EXIST)?;
    equal("a state without control", state.read()?, inactive)?;
    refused("iresume without an overflow", state.iresume(), Errno::PERM)
}

pub(crate) fn control_and_read() -> Result<()> {
    let tracee = Tracee::start(ROUNDS_ROLE)?;
    tracee.continue_until(STOP)?;
    let state = Vperfctr::open(tracee.tid(), true)?;
    state.control(&control())?;
    equal("sums before it ran", state.sums()?, SumCtrs::default())?;
    let bad = VperfctrControl { cpu_control: twice(INSTRUCTIONS, 1000)?.cpu_control, ..control() };
    refused(
        "interrupts without a signal",
        state.control(&VperfctrControl { si_signo: 99, ..bad }),
        Errno::INVAL,
    )?;
    state.control(&control())?;
    tracee.is_exact(&state)?;
    let last = state.sums()?;
    state.stop()?;
    equal("sums after a stop", state.sums()?, last)?;
    let preserving = VperfctrControl { preserve: 1 << INSTRUCTIONS_AT, ..control() };
    state.control(&preserving)?;
    let kept = state.sums()?;
    equal("the preserved sum", kept.pmc[INSTRUCTIONS_AT], last.pmc[INSTRUCTIONS_AT])?;
    equal("the other sum", kept.pmc[BRANCHES_AT], 0)
}

fn unlink() -> Result<()> {
    let tracee = Tracee::start(ROUNDS_ROLE)?;
    let state = Vperfctr::open(tracee.tid(), true)?;
    state.unlink().context("before it ran")?;
    let state = Vperfctr::open(tracee.tid(), true)?;
    state.control(&control())?;
    tracee.continue_until(STOP)?;
    let last = state.sums()?;
    ensure!(last.pmc[INSTRUCTIONS_AT] > 0, "nothing was counted");
    state.unlink()?;
    state.unlink().context("unlink of an unlinked state")?;
    refused("control of an unlinked state", state.control(&control()), Errno::SRCH)?;
    equal("cstatus", state.map()?.state().cstatus, 0)?;
    let anew = Vperfctr::open(tracee.tid(), true).context("a state after the first")?;
    anew.control(&control())?;
    tracee.is_exact(&anew)?;
    equal("final sums", state.sums()?, last)
}

/// The tracer samples the tracee, which knows nothing of it, to its end.
fn samples() -> Result<()> {
    const PERIOD: u32 = 4_001;
    let tracee = Tracee::start(ROUNDS_ROLE)?;
    tracee.continue_until(STOP)?;
    let state = Vperfctr::open(tracee.tid(), true)?;
    let mut buffer = state.map_samples(0)?;
    state.control(&sampling(INSTRUCTIONS, PERIOD)?)?;
    let (mut recorded, tid) = (0, tracee.tid() as u32);
    for _ in ROUNDS {
        tracee.continue_until(STOP)?;
        let records = std::iter::from_fn(|| buffer.take());
        for record in records {
            equal("mask, pid and tid", (record.mask, record.pid, record.tid), (2, tid, tid))?;
            recorded += 1;
        }
        let periods = state.sums()?.pmc[1] / u64::from(PERIOD);
        equal("samples and lost ones", (recorded, buffer.lost()), (periods, 0))?;
    }
    ensure!(recorded > 100, "only {recorded} samples");
    equal("while it lives", ready(&state)?, PollFlags::empty())?;
    drop(tracee);
    equal("after its end", ready(&state)?, PollFlags::HUP)
}

/// The signals of overflows stop the tracee, with its counters standing still until the tracer resumes them.
pub(crate) fn iresume() -> Result<()> {
    const PERIOD: u32 = 50_000;
    let tracee = Tracee::start(ROUNDS_ROLE)?;
    for _ in 0..4 {
        // The next round has 100,000 iterations.
        tracee.continue_until(STOP)?;
    }
    let state = Vperfctr::open(tracee.tid(), true)?;
    state.control(&twice(INSTRUCTIONS, PERIOD)?)?;
    for number in 1..=3 {
        tracee.continue_until(SIGNAL)?;
        let sums = state.sums()?;
        equal("accumulated and interrupting", sums.pmc[0], sums.pmc[1])?;
        equal("overflows", sums.pmc[1] / u64::from(PERIOD), number)?;
        state.iresume()?;
        refused("a second iresume", state.iresume(), Errno::PERM)?;
    }
    tracee.continue_until(SIGNAL)?;
    let last = state.sums()?;
    tracee.continue_until(STOP)?;
    equal("events without iresume", state.sums()?.pmc, last.pmc)
}

fn exec() -> Result<()> {
    let tracee = Tracee::start(EXECS_ROLE)?;
    let state = Vperfctr::open(tracee.tid(), true)?;
    state.control(&control())?;
    tracee.continue_until(libc::SIGTRAP)?;
    let at_exec = state.sums()?;
    ensure!(at_exec.pmc[INSTRUCTIONS_AT] > 0, "nothing was counted before the exec");
    tracee.continue_until(STOP)?;
    tracee.is_exact(&state)
}

/// SIGKILL comes whenever it wants: the state becomes final, and nothing worse.
fn killed() -> Result<()> {
    (0..20).try_for_each(killed_after)
}

/// Killed so many tenths of a millisecond after its tracer began; if odd, with counters that run.
pub(crate) fn killed_after(delay: u64) -> Result<()> {
    let mut tracee = Tracee::start(ROUNDS_ROLE)?;
    let mut state = Vperfctr::open(tracee.tid(), true)?;
    if delay % 2 == 1 {
        state.control(&control())?;
        tracee.continue_until(STOP)?;
    }
    let tid = tracee.tid();
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_micros(100 * delay));
        // SAFETY: no memory involved; the child is not reaped before this thread has ended.
        unsafe { libc::kill(tid, libc::SIGKILL) };
    });
    // Refused once it is killed: first because it runs, then because it has ended.
    let refusal = loop {
        if let Err(error) = state.control(&control()).and_then(|()| state.unlink()) {
            break error;
        }
        match Vperfctr::open(tid, true) {
            Ok(anew) => state = anew,
            Err(error) => break error,
        }
    };
    equal("the refusal of what is killed", refusal.errno(), Errno::SRCH)?;
    killer.join().expect("it does not panic");
    tracee.0.wait()?;
    let last = state.sums().context("final sums")?;
    equal("final sums, mapped", state.map()?.sums(), last)?;
    refused("control of what has ended", state.control(&control()), Errno::SRCH)?;
    refused("open of what has ended", Vperfctr::open(tid, true), Errno::SRCH)
}
