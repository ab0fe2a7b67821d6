//! A thread of another process under the caller's ptrace, to be acted on.

#![allow(unsafe_code)] // fork and ptrace.

use std::ptr::null_mut;

use anyhow::{Result, bail};
use tests::workload::spin;

use crate::random::Random;

/// It stands still whenever the caller does something else.
pub(super) struct Tracee(i32);

impl Tracee {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: the caller has one thread; the child makes system calls only, until it is killed.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => bail!("fork: {}", std::io::Error::last_os_error()),
            0 => loop {
                // SAFETY: no memory involved.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>());
                    libc::raise(libc::SIGUSR2);
                }
                spin(500);
            },
            pid => {
                let tracee = Self(pid);
                tracee.wait();
                Ok(tracee)
            }
        }
    }

    pub(super) fn tid(&self) -> i32 {
        self.0
    }

    /// Let it go to its next stop, its own or that of an overflow; or to its end.
    pub(super) fn step(&mut self, random: &mut Random) -> Result<()> {
        if random.below(8) == 0 {
            *self = Self::new()?;
            return Ok(());
        }
        // SAFETY: this request uses no memory of ours.
        unsafe { libc::ptrace(libc::PTRACE_CONT, self.0, null_mut::<u8>(), null_mut::<u8>()) };
        self.wait();
        Ok(())
    }

    fn wait(&self) {
        let mut status = 0;
        // SAFETY: `status` is ours.
        unsafe { libc::waitpid(self.0, &mut status, libc::__WALL) };
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // SAFETY: no memory involved; the child is ours and not reaped.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        self.wait();
    }
}
