//! Processes that are copies of the calling thread.

#![allow(unsafe_code)] // fork, and what a child may do after it.

use std::ffi::c_int;

use anyhow::{Result, ensure};

/// A child of fork(2), alone in its process. It must not outlive this.
#[derive(Debug)]
pub(crate) struct Forked {
    pid: i32,
    reaped: bool,
}

impl Forked {
    /// A child that does `work` and ends: with status 0 if that says that all is well. After a fork of a process with
    /// threads, whatever takes a lock or memory may wait for ever: `work` makes system calls.
    pub(crate) fn start(work: impl FnOnce() -> bool) -> Result<Self> {
        // SAFETY: the child runs `work`, whose authors have read the above, and ends without any clean-up.
        let pid = unsafe { libc::fork() };
        match pid {
            0 => {
                let status = c_int::from(!work());
                // SAFETY: ends the process.
                unsafe { libc::_exit(status) }
            }
            _ => ensure!(pid > 0, "fork: {}", std::io::Error::last_os_error()),
        }
        Ok(Self { pid, reaped: false })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn kill(&self) {
        // SAFETY: no memory involved; it has not been reaped, so the number is its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }

    /// What waitpid(2) says of its end.
    pub(crate) fn wait(mut self) -> c_int {
        self.reap()
    }

    /// It ended with status 0.
    pub(crate) fn succeeds(self) -> Result<()> {
        let status = self.wait();
        ensure!(status == 0, "the child ended with status {status:#x}");
        Ok(())
    }

    fn reap(&mut self) -> c_int {
        let mut status = 0;
        // SAFETY: `status` is ours. A signal handler is nothing these checks have while they wait.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
        self.reaped = true;
        status
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if !self.reaped {
            self.kill();
            self.reap();
        }
    }
}
