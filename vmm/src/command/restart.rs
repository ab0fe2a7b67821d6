//! A machine in a process of its own, so that another one can follow it.
//!
//! A confined process makes no second machine. Where the guest may restart, at a shell, this process waits, and hears of its child only
//! how it ended; what a guest says it never sees.
#![allow(unsafe_code, reason = "fork and the signals of a process that only waits are in libc alone")]

use std::io;
use std::mem::MaybeUninit;
use std::process::exit;
use std::ptr;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, waitpid};
use session::EXIT_OWN_FAILURE;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::say::say;

/// Those that the child passes on to the command. A terminal sends them to both.
const PASSED_ON: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// How a machine ended.
pub(super) enum End {
    /// With the command, or with an error that was reported.
    Status(u8),
    /// The guest restarted, and there is a shell to go back to.
    Restart,
}

/// Do it in a child, and wait for that. While this process has one thread.
pub(super) fn in_child(boot: impl FnOnce() -> Result<End>) -> Result<End> {
    let restarts = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).context("eventfd")?;
    let blocked = Blocked::new();
    let parent = rustix::process::getpid();
    // SAFETY: this process has one thread, so that the child finds no lock held by another.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("fork"),
        0 => {
            // Who kills this process means the machine.
            let dies_with_parent = set_parent_process_death_signal(Some(Signal::KILL));
            if dies_with_parent.is_err() || rustix::process::getppid() != Some(parent) {
                exit(EXIT_OWN_FAILURE.into());
            }
            drop(blocked);
            exit(match boot() {
                Ok(End::Status(status)) => status.into(),
                Ok(End::Restart) => restarts.write(1).map_or(EXIT_OWN_FAILURE.into(), |()| 0),
                Err(e) => {
                    say(format_args!("{e:#}"));
                    EXIT_OWN_FAILURE.into()
                }
            })
        }
        child => {
            let status = blocked.wait(child)?;
            Ok(if restarts.read().is_ok() { End::Restart } else { End::Status(status) })
        }
    }
}

/// Signals that wait until somebody asks for them, and the mask before.
struct Blocked {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl Blocked {
    fn new() -> Self {
        let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigemptyset initialises the set that the others use, and sigprocmask the other one.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            Self { set: set.assume_init(), before: before.assume_init() }
        }
    }

    /// The status of `child`, as a shell has it.
    fn wait(&self, child: libc::pid_t) -> Result<u8> {
        let pid = Pid::from_raw(child);
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
            // SAFETY: both are valid, and the call fills the second if it gives a signal.
            let signal = unsafe { libc::sigwaitinfo(&self.set, info.as_mut_ptr()) };
            if signal == libc::SIGCHLD {
                // It may have stopped only.
                if let Some((_, status)) = waitpid(pid, WaitOptions::NOHANG).context("waitpid")? {
                    let code =
                        status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
                    return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_OWN_FAILURE));
                }
            } else if signal > 0 {
                // SAFETY: the call gave a signal, so it filled this; a code up to 0 means that a process sent it, rather than the
                // terminal, which sends it to the child, too. kill takes two integers, and the child was not waited for.
                unsafe {
                    if info.assume_init_ref().si_code <= 0 {
                        libc::kill(child, signal);
                    }
                }
            }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is what the kernel gave.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
