//! fork, exec, and descriptors given to other processes.

#![allow(unsafe_code)] // Code between fork and exec.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::VperfctrControl;
use libvperfctr::{Vperfctr, pass};
use rustix::io::Errno;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::measured::{BRANCHES_AT, INSTRUCTIONS_AT, Measured, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "inherit-not-by-fork", run: not_by_fork },
    Check { name: "inherit-by-exec", run: by_exec },
    Check { name: "inherit-by-passing", run: by_passing },
    Check { name: "inherit-from-the-killed", run: from_the_killed },
];

/// A child that does nothing.
pub(super) const BYSTANDER: &str = "bystander";
/// A child that finds counters from before its exec.
pub(super) const KEPT: &str = "kept";
/// A child that gives its counters away and ends.
pub(super) const GIVER: &str = "giver";

/// A child that gives away the counters of all its threads and then never ends.
pub(super) const VICTIM: &str = "victim";

/// Threads of [`victim`].
const VICTIMS: usize = 8;
/// Iterations of [`giver`].
const GIVEN: u64 = 100_000;

fn role(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--child", role]);
    command
}

fn succeeds(command: &mut Command) -> Result<()> {
    let status = command.status().context("the child did not start")?;
    ensure!(status.success(), "the child failed ({status}); its message is on standard error");
    Ok(())
}

pub(crate) fn not_by_fork() -> Result<()> {
    let measured = Measured::start()?;
    let mut child = role(BYSTANDER);
    // SAFETY: only system calls between fork and exec.
    unsafe {
        child.pre_exec(|| match Vperfctr::open(0, false).and_then(|handle| handle.read()) {
            Err(error) if error.errno() == Errno::INVAL => Ok(()),
            Err(error) => Err(error.errno().into()),
            // The parent's error will be "File exists".
            Ok(_) => Err(Errno::EXIST.into()),
        });
    }
    succeeds(&mut child).context("reading counters in a forked child")?;
    measured.is_exact()
}

pub(crate) fn by_exec() -> Result<()> {
    let mut child = role(KEPT);
    // SAFETY: only system calls between fork and exec.
    unsafe {
        child.pre_exec(|| {
            let errno = |error: libvperfctr::Error| io::Error::from(error.errno());
            let state = Vperfctr::open(0, true).map_err(errno)?;
            state.control(&control()).map_err(errno)
            // Closing the descriptor leaves the counters with the thread.
        });
    }
    succeeds(&mut child)
}

/// In the child after the exec.
pub(super) fn kept() -> Result<()> {
    let state = Vperfctr::open(0, false)?;
    let (sums, seen) = state.read().context("reading the counters made before the exec")?;
    equal("control", seen.cpu_control, control().cpu_control)?;
    ensure!(sums.pmc[INSTRUCTIONS_AT] > 0, "nothing was counted since before the exec");
    Measured { state }.is_exact()
}

pub(crate) fn by_passing() -> Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = role(GIVER);
    // Standard input is the way to the child's socket.
    let mut child = command.stdin(OwnedFd::from(theirs)).spawn()?;
    // The child's end must close with the child.
    drop(command);
    let state = Vperfctr::from(pass::receive(&ours).context("no descriptor came from the child")?);
    let status = child.wait()?;
    ensure!(status.success(), "the child failed ({status})");
    let (sums, seen) = state.read().context("reading after the child's end")?;
    ensure!(
        sums.pmc[INSTRUCTIONS_AT] >= GIVEN * INSTRUCTIONS_PER_ITERATION,
        "{} instructions of at least {}",
        sums.pmc[INSTRUCTIONS_AT],
        GIVEN * INSTRUCTIONS_PER_ITERATION
    );
    ensure!(seen != VperfctrControl::default(), "the control is gone");
    equal("page", state.map()?.sums(), sums)?;
    refused("control after the child's end", state.control(&control()), Errno::SRCH)?;
    state.unlink()?;
    equal("sums, read again", state.sums()?, sums)
}

/// In the child: counters, given away, then work that is only counted there.
pub(super) fn giver() -> Result<()> {
    let measured = Measured::start()?;
    pass::send(io::stdin(), measured.state.as_fd())?;
    spin(GIVEN);
    Ok(())
}

/// A process killed while all its threads count leaves final counts behind.
pub(crate) fn from_the_killed() -> Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = role(VICTIM);
    let mut child = command.stdin(OwnedFd::from(theirs)).spawn()?;
    drop(command);
    let receive = || Ok(Vperfctr::from(pass::receive(&ours).context("no descriptor came from the child")?));
    let states: Vec<_> = (0..VICTIMS).map(|_| receive()).collect::<Result<_>>()?;
    for state in &states {
        refused("a read of somebody else's counters", state.sums(), Errno::SRCH)?;
    }
    child.kill()?;
    // The process has ended when its last thread has.
    child.wait()?;
    for state in states {
        let page = state.map()?;
        let last = state.sums()?;
        equal("cstatus", page.state().cstatus, 0)?;
        equal("page", page.sums(), last)?;
        ensure!(last.pmc[INSTRUCTIONS_AT] > 0, "nothing was counted");
        let (instructions, branches) = (last.pmc[INSTRUCTIONS_AT], last.pmc[BRANCHES_AT]);
        ensure!(branches < instructions, "{branches} branches of {instructions} instructions");
    }
    Measured::start()?.is_exact()
}

/// In the child: as many threads as there are to be, until somebody kills them.
pub(super) fn victim() -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..VICTIMS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let measured = Measured::start()?;
                    pass::send(io::stdin(), measured.state.as_fd())?;
                    loop {
                        spin(10_000);
                        rustix::thread::sched_yield();
                    }
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a thread panicked")?)
    })
}
