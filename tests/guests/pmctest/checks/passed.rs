//! "Accesses from threads other than the owner are permitted as long as they posses the file descriptor and use
//! ptrace() for synchronisation."

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, ensure};
use libvperfctr::{Vperfctr, pass};
use rustix::io::Errno;

use super::tracee::{self, STOP, Tracee};
use crate::check::Check;
use crate::expect::{equal, refused};
use crate::measured::{INSTRUCTIONS_AT, Measured, control};

pub(super) const CHECKS: &[Check] =
    &[Check { name: "tracee-by-passed-descriptor", run: by_passed_descriptor }];

/// A child that gives its counters away, then is a tracee.
pub(super) const GIVES: &str = "tracee-gives";

fn by_passed_descriptor() -> Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let tracee = Tracee::start_with(GIVES, |command| {
        command.stdin(OwnedFd::from(theirs));
    })?;
    tracee.continue_until(STOP)?;
    let state = Vperfctr::from(pass::receive(&ours).context("no descriptor came from the child")?);
    let seen = state.sums().context("read by who traces it")?;
    ensure!(seen.pmc[INSTRUCTIONS_AT] > 0, "nothing was counted");
    std::thread::scope(|scope| {
        // Possession alone is not enough, and it is the thread that traces, not its process.
        let other = scope.spawn(|| -> Result<()> {
            refused("read by another thread", state.sums(), Errno::SRCH)?;
            refused("control by another thread", state.control(&control()), Errno::SRCH)?;
            refused("iresume by another thread", state.iresume(), Errno::SRCH)?;
            refused("unlink by another thread", state.unlink(), Errno::SRCH)
        });
        other.join().ok().context("panicked")?
    })?;
    state.control(&control()).context("control by who traces it")?;
    tracee.is_exact(&state)?;
    let last = state.sums()?;
    state.unlink().context("unlink by who traces it")?;
    equal("final sums", state.sums()?, last)
}

/// In the child.
pub(super) fn gives() -> Result<()> {
    let measured = Measured::start()?;
    pass::send(io::stdin(), measured.state.as_fd())?;
    tracee::rounds()
}
