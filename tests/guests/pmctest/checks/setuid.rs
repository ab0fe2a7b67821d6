//! Programs that may do more than who starts them: what they do is their own affair.

#![allow(unsafe_code)] // fork, exec and ptrace.

use std::ffi::{CString, c_int};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::null_mut;

use anyhow::{Context, Result, ensure};
use libvperfctr::{Vperfctr, pass};
use rustix::io::Errno;
use tests::workload::spin;

use super::unprivileged::{NOBODY, role_of, succeeds};
use crate::check::Check;
use crate::expect::{equal, refused};
use crate::measured::{INSTRUCTIONS_AT, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "setuid-own-counters", run: own_counters },
    Check { name: "setuid-from-its-tracer", run: from_its_tracer },
];

/// What a setuid program finds.
pub(super) const SETUID: &str = "setuid-program";
/// A tracer that gives one counters at the last moment.
pub(super) const TRACER: &str = "setuid-tracer";
/// Which program, for [`TRACER`].
const PROGRAM: &str = "PMCTEST_SETUID";

/// Iterations of [`program`]: more than all instructions from the control to the exec.
const ITERATIONS: u64 = 10_000_000;

/// Counters survive an exec, but not into such a program.
fn own_counters() -> Result<()> {
    let copy = Copy::new()?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(&copy.0);
    command.args(["--child", SETUID]).uid(NOBODY).gid(NOBODY).stdin(OwnedFd::from(theirs));
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let errno = |error: libvperfctr::Error| io::Error::from(error.errno());
            let state = Vperfctr::open(0, true).map_err(errno)?;
            state.control(&control()).map_err(errno)?;
            pass::send(io::stdin(), state.as_fd())
        });
    }
    let mut child = command.spawn()?;
    drop(command);
    let state = Vperfctr::from(pass::receive(&ours).context("no descriptor came from the child")?);
    let status = child.wait()?;
    ensure!(status.success(), "the setuid program failed ({status})");
    nothing_was_counted(&state)
}

fn nothing_was_counted(state: &Vperfctr) -> Result<()> {
    let counted = state.sums()?.pmc[INSTRUCTIONS_AT];
    ensure!(counted < ITERATIONS, "{counted} instructions of a setuid program were counted for its caller");
    equal("its counters", state.map()?.state().cstatus, 0)
}

/// In the child after the exec: root, started by nobody.
pub(super) fn program() -> Result<()> {
    equal("the effective user", rustix::process::geteuid().as_raw(), 0)?;
    equal("the real user", rustix::process::getuid().as_raw(), NOBODY)?;
    spin(ITERATIONS);
    refused("read of the caller's counters", Vperfctr::open(0, false)?.read(), Errno::INVAL)
}

/// A tracee that is given counters inside of its exec, and let go, runs no instruction of its own before the exec is
/// done: a driver that waits for one is too late.
fn from_its_tracer() -> Result<()> {
    let copy = Copy::new()?;
    succeeds(role_of(NOBODY, TRACER).env(PROGRAM, &copy.0))
}

/// In the child: fork, trace, open, control, let go.
pub(super) fn tracer() -> Result<()> {
    let program = CString::new(std::env::var(PROGRAM)?)?;
    let arguments = [program.as_ptr(), c"--child".as_ptr(), c"setuid-program".as_ptr(), std::ptr::null()];
    // SAFETY: this process has one thread; the child makes system calls only.
    let pid = unsafe { libc::fork() };
    ensure!(pid >= 0, "fork: {}", io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: the strings are there; no other memory is involved.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>());
            libc::raise(libc::SIGSTOP);
            libc::execv(program.as_ptr(), arguments.as_ptr());
            libc::_exit(126);
        }
    }
    stops(pid)?;
    // The first system calls end that of raise(); each stops at its begin and at its end.
    loop {
        ptrace(libc::PTRACE_SYSCALL, pid)?;
        stops(pid)?;
        if system_call(pid)? == libc::SYS_execve as u64 {
            break;
        }
    }
    let state = Vperfctr::open(pid, true)?;
    state.control(&control())?;
    ptrace(libc::PTRACE_DETACH, pid)?;
    let status = wait(pid)?;
    ensure!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the setuid program: {status:#x}");
    nothing_was_counted(&state)
}

fn wait(pid: i32) -> Result<c_int> {
    let mut status = 0;
    // SAFETY: `status` is ours.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    ensure!(waited == pid, "waitpid: {}", io::Error::last_os_error());
    Ok(status)
}

fn stops(pid: i32) -> Result<()> {
    let status = wait(pid)?;
    ensure!(libc::WIFSTOPPED(status), "the child did not stop, but {status:#x}");
    Ok(())
}

fn ptrace(request: libc::c_uint, pid: i32) -> Result<()> {
    // SAFETY: these requests use no memory of ours.
    let answer = unsafe { libc::ptrace(request, pid, null_mut::<u8>(), null_mut::<u8>()) };
    ensure!(answer == 0, "ptrace request {request}: {}", io::Error::last_os_error());
    Ok(())
}

/// The number of the call that a stopped thread is in.
fn system_call(pid: i32) -> Result<u64> {
    // SAFETY: all zero is a good set of registers, which the kernel fills.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let answer = libc::ptrace(libc::PTRACE_GETREGS, pid, null_mut::<u8>(), &raw mut registers);
        ensure!(answer == 0, "PTRACE_GETREGS: {}", io::Error::last_os_error());
        Ok(registers.orig_rax)
    }
}

/// A copy of this program that is root's whoever starts it. Not in /tmp, which is mounted nosuid.
struct Copy(PathBuf);

impl Copy {
    fn new() -> Result<Self> {
        let copy = Self(PathBuf::from(format!("/pmctest-setuid-{}", std::process::id())));
        fs::copy("/proc/self/exe", &copy.0).with_context(|| format!("{}", copy.0.display()))?;
        fs::set_permissions(&copy.0, fs::Permissions::from_mode(0o4755))?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
