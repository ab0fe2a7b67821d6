//! Exit statuses. As PID 1 we inherit every orphan, so one place waits for all children and hands the statuses
//! of the programs of sessions to those who asked.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use session::ExitStatus;

/// The end of one program, to be waited for with poll.
#[derive(Debug)]
pub struct Exit {
    event: OwnedFd,
    status: Mutex<Option<ExitStatus>>,
}

impl Exit {
    /// The status, once the program ended.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Exit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// All children somebody waits for.
#[derive(Debug, Default)]
pub struct Reaper {
    awaited: Mutex<HashMap<Pid, Arc<Exit>>>,
}

impl Reaper {
    /// Starts a program.
    pub fn spawn(&self, command: &mut Command) -> io::Result<(Pid, Arc<Exit>)> {
        let exit = Arc::new(Exit {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            status: Mutex::new(None),
        });
        // Held over the start, so that the status of a program that ends at once finds its entry.
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = Pid::from_child(&command.spawn()?);
        awaited.insert(pid, Arc::clone(&exit));
        Ok((pid, exit))
    }

    /// Collects every child that ended; call it at SIGCHLD.
    pub fn reap(&self) {
        loop {
            // The lock is taken first: a child reaped by us must be in the map, see `spawn`.
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let (Some(exit), Some(status)) = (awaited.remove(&pid), exit_status(status)) {
                        *exit.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                        // A full eventfd counter is readable too, so a failed write loses nothing.
                        let _ = rustix::io::write(&exit.event, &1u64.to_ne_bytes());
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }
}

fn exit_status(status: WaitStatus) -> Option<ExitStatus> {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(ExitStatus::Code(code as u8)),
        (None, Some(signal)) => Some(ExitStatus::Signal(signal as u8)),
        (None, None) => None,
    }
}
