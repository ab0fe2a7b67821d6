//! `--pid`: counting a process that runs already.
//!
//! All its threads are stopped by ptrace, each gets counters, and all go on. When the time is up, or on ^C, the threads
//! are stopped once more, one by one, and their counters read and taken away. A thread that has ended leaves its
//! final counts behind the descriptor.

#![allow(unsafe_code)] // Blocking signals and reading them from a descriptor.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use libvperfctr::layout::extension;
use libvperfctr::trace::{self, Stopped};
use libvperfctr::{Driver, Vperfctr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::counted::{Counted, Plan, Run};

/// Count process `pid` until it ends, ^C or SIGTERM comes, or the time is over.
pub(crate) fn watch(driver: &Driver, pid: i32, plan: &Plan, time: Option<Duration>) -> Result<Run> {
    driver.require(
        extension::OTHER_THREADS,
        "counts for no thread but the one that asks, so --pid cannot work",
    )?;
    let process = Pid::from_raw(pid)
        .ok_or(Errno::SRCH)
        .and_then(|id| pidfd_open(id, PidfdFlags::empty()))
        .map_err(|errno| refused(pid, errno.into()))?;
    let interrupted = interruptions().context("cannot wait for signals")?;

    let threads = attach(pid, plan)?;
    let mut fds = [PollFd::new(&process, PollFlags::IN), PollFd::new(&interrupted, PollFlags::IN)];
    let time =
        time.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
    // Only signals that are blocked could interrupt it, and those do not.
    poll(&mut fds, time.as_ref()).context("cannot wait for the process")?;

    let threads: Result<Vec<(i32, Counted)>> =
        threads.iter().map(|(tid, state)| Ok((*tid, finish(*tid, state, plan)?))).collect();
    let threads = threads?;
    let counted =
        Counted::sum(threads.iter().map(|(_, counted)| counted)).context("no thread was counted")?;
    Ok(Run { counted, status: None, threads })
}

/// Counters for every thread, all started before any thread goes on. If one cannot have them, none has.
fn attach(pid: i32, plan: &Plan) -> Result<Vec<(i32, Vperfctr)>> {
    let stopped = trace::stop_all(pid).map_err(|error| refused(pid, error))?;
    let mut states = Vec::new();
    for thread in &stopped {
        match start(thread, plan) {
            Ok(state) => states.push((thread.tid(), state)),
            Err(error) => {
                for (_, state) in &states {
                    // The threads stand still, so this cannot fail but for one that was killed.
                    let _ = state.unlink();
                }
                return Err(error.context(format!("thread {} of process {pid}", thread.tid())));
            }
        }
    }
    Ok(states)
}

fn start(thread: &Stopped, plan: &Plan) -> Result<Vperfctr> {
    let state = Vperfctr::open(thread.tid(), true)?;
    if let Err(error) = state.control(&plan.control) {
        let _ = state.unlink();
        return Err(error.into());
    }
    Ok(state)
}

/// Final counts of a thread, which has no counters afterwards.
fn finish(tid: i32, state: &Vperfctr, plan: &Plan) -> Result<Counted> {
    // A thread may end at any time. Then nobody owns the state, and it can be read without more ado; and it could
    // be wrong to stop `tid`, which may be another thread's by now.
    let first = read(state, plan);
    let Err(Errno::SRCH) = first.as_ref().map_err(libvperfctr::Error::errno) else { return Ok(first?) };
    match Stopped::stop(tid) {
        Ok(stopped) => {
            let counted = read(state, plan)?;
            state.unlink()?;
            drop(stopped);
            Ok(counted)
        }
        // It has ended just now.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(read(state, plan)?),
        Err(error) => {
            Err(Error::new(error).context(format!("cannot stop thread {tid} to read its counters")))
        }
    }
}

fn read(state: &Vperfctr, plan: &Plan) -> Result<Counted, libvperfctr::Error> {
    let own = state.sums()?;
    Ok(Counted { own, children: if plan.inherits() { Some(state.children_sums()?) } else { None } })
}

fn refused(pid: i32, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ESRCH) => anyhow!("there is no process {pid}, or it has ended"),
        Some(libc::EPERM) => anyhow!(
            "process {pid} may not be traced: it belongs to somebody else (be root), a debugger traces it already, it is \
             perfex itself, or kernel.yama.ptrace_scope forbids it"
        ),
        // pidfd_open's answer to the id of a thread.
        Some(libc::EINVAL | libc::ENOENT) => anyhow!("{pid} is a thread of a process: give the process's id"),
        _ => Error::new(error).context(format!("cannot attach to process {pid}")),
    }
}

/// A descriptor that is readable when SIGINT or SIGTERM has come, neither of which ends perfex any more.
fn interruptions() -> io::Result<OwnedFd> {
    // SAFETY: a signal set is plain data, made valid by sigemptyset; the calls only read it.
    let fd = unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGINT);
        libc::sigaddset(&mut signals, libc::SIGTERM);
        if libc::sigprocmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signalfd(-1, &signals, libc::SFD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use libvperfctr::layout::cpu_type;

    use super::*;
    use crate::info::tests::machine;
    use crate::report::tests::plan;

    fn error(driver: &Driver, pid: i32) -> String {
        format!("{:#}", watch(driver, pid, &plan(), None).unwrap_err())
    }

    #[test]
    fn a_driver_that_cannot_is_said_first() {
        assert!(error(&machine(cpu_type::K8), 1).contains("--pid cannot work"));
    }

    #[test]
    fn what_is_no_process_is_named() {
        let mut driver = machine(cpu_type::K8);
        driver.info.extensions = extension::OTHER_THREADS;
        for pid in [0, i32::MAX] {
            assert!(error(&driver, pid).contains(&format!("there is no process {pid}")));
        }
    }
}
