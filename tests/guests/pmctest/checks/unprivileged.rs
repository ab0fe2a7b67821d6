//! Users without privileges: they count, and only what is theirs.

#![allow(unsafe_code)] // ptrace and pidfd_getfd.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use anyhow::{Context, Result, ensure};
use images::process::Guarded;
use libvperfctr::{Driver, Vperfctr, sys};
use rustix::io::Errno;
use tests::event::INSTRUCTIONS;
use tests::workload::spin;

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::interrupting::{Interrupted, Then};
use crate::measured::Measured;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "unprivileged-counts", run: counts },
    Check { name: "unprivileged-not-anothers", run: not_anothers },
];

/// A child that counts, as a user who may do nothing.
pub(super) const COUNTER: &str = "unprivileged-counter";
/// A child that counts until its standard input ends.
pub(super) const NEIGHBOUR: &str = "unprivileged-neighbour";
/// A child that wants to see what the neighbour counts.
pub(super) const PRYING: &str = "unprivileged-prying";
/// "nobody" and "nogroup".
pub(crate) const NOBODY: u32 = 65534;
const SOMEBODY: u32 = 1000;
/// Where [`NEIGHBOUR`] is, for [`PRYING`].
const WHERE: &str = "PMCTEST_NEIGHBOUR";

/// This program in another role, as another user, without groups.
pub(crate) fn role_of(user: u32, role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--child", role]).uid(user).gid(user);
    command
}

pub(super) fn succeeds(command: &mut Command) -> Result<()> {
    let status = command.status().context("the child did not start")?;
    ensure!(status.success(), "the child failed ({status}); its message is on standard error");
    Ok(())
}

fn counts() -> Result<()> {
    succeeds(&mut role_of(NOBODY, COUNTER))
}

/// In the child: all six calls, the mapping, and interrupts.
pub(super) fn counter() -> Result<()> {
    equal("the user", rustix::process::geteuid().as_raw(), NOBODY)?;
    Driver::query()?;
    let measured = Measured::start()?;
    measured.is_exact()?;
    equal("the mapping's sums", measured.state.map()?.state().cstatus >> 31, 1)?;
    measured.state.unlink()?;
    let interrupted = Interrupted::start(Then::Resume, INSTRUCTIONS, 100_000)?;
    spin(1_000_000);
    ensure!(interrupted.is_exact(100_000)? >= 40, "overflows are missing");
    Ok(())
}

fn not_anothers() -> Result<()> {
    let mut neighbour =
        Guarded::spawn(role_of(SOMEBODY, NEIGHBOUR).stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    let mut line = String::new();
    BufReader::new(neighbour.0.stdout.take().context("no pipe")?).read_line(&mut line)?;
    let place = format!("{} {}", neighbour.0.id(), line.trim());
    succeeds(role_of(NOBODY, PRYING).env(WHERE, &place)).context("as another user")?;
    drop(neighbour.0.stdin.take());
    let status = neighbour.0.wait()?;
    ensure!(status.success(), "the neighbour failed ({status})");
    Ok(())
}

/// In the child: counters, until the parent ends it.
pub(super) fn neighbour() -> Result<()> {
    let measured = Measured::start()?;
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    println!("{own} {}", measured.state.as_fd().as_raw_fd());
    io::stdout().flush()?;
    let mut end = String::new();
    io::stdin().read_line(&mut end)?;
    measured.is_exact()
}

/// In the child: every way to the neighbour's counters is closed.
pub(super) fn prying() -> Result<()> {
    let place = std::env::var(WHERE)?;
    let numbers: Vec<i32> = place.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [process, thread, fd] = numbers[..] else { anyhow::bail!("no place in '{place}'") };
    for tid in [process, thread] {
        for creat in [false, true] {
            refused("open of another's thread", Vperfctr::open(tid, creat), Errno::SRCH)?;
        }
        // SAFETY: these requests use no memory of ours.
        let attached = unsafe {
            [libc::PTRACE_ATTACH, libc::PTRACE_SEIZE]
                .map(|request| libc::ptrace(request, tid, null_mut::<u8>(), null_mut::<u8>()))
        };
        equal("ptrace of another's thread", attached, [-1, -1])?;
    }
    let listed = fs::File::open(format!("/proc/{process}/fd/{fd}"));
    ensure!(listed.is_err(), "/proc/{process}/fd/{fd} could be opened");
    let pidfd = rustix::process::pidfd_open(
        rustix::process::Pid::from_raw(process).context("no process")?,
        rustix::process::PidfdFlags::empty(),
    )?;
    // SAFETY: no memory involved.
    let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) };
    equal("pidfd_getfd", taken, -1)?;
    // The number of the neighbour's descriptor is nothing here.
    for number in 3..100 {
        // SAFETY: numbers of this process's own descriptors, if of any; only read.
        let own = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
        let mut sums = Default::default();
        // SAFETY: a good pointer; the control is not asked for.
        ensure!(unsafe { sys::read(own, &mut sums, null_mut()) }.is_err(), "descriptor {number} can be read");
    }
    Measured::start()?.is_exact()
}
