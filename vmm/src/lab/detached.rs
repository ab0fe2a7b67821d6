//! A process that outlives us: the lab machine's.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long it may make a file: a kernel may complain on its console without end.
pub(super) const FILE_MAX: u64 = 16 << 20;

/// Starts it in a session of its own, so that neither our terminal's signals nor its
/// hang-up reach it, and with `inherited` open under their numbers. It gets nothing else that is open here, for whoever started
/// us may wait for the end of a pipe. The files that it writes become no longer than [`FILE_MAX`].
#[allow(unsafe_code)] // CommandExt::pre_exec is the only way to do something between fork and exec.
pub(super) fn spawn_detached(mut command: Command, inherited: Vec<OwnedFd>) -> io::Result<u32> {
    let detach = move || {
        rustix::process::setsid()?;
        limit_files()?;
        close_all_at_exec();
        for fd in &inherited {
            fcntl_setfd(fd.as_fd(), FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the child between fork and exec; it makes system calls on descriptors it owns and flags those
    // that it does not know, and neither allocates nor takes locks.
    unsafe { command.pre_exec(detach) };
    // The machine is nobody's child in the end: we do not wait for it, and init reaps it after us. Dropping
    // `command` closes our copies of what it inherited.
    Ok(command.spawn()?.id())
}

/// Of this process and those it becomes: a write beyond is an error, and not a signal that ends it.
#[allow(unsafe_code)] // rustix sets no signal's action.
fn limit_files() -> io::Result<()> {
    // SAFETY: ignoring a signal calls no code.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = getrlimit(Resource::Fsize).current.map_or(FILE_MAX, |limit| limit.min(FILE_MAX));
    Ok(setrlimit(Resource::Fsize, Rlimit { current: Some(limit), maximum: Some(limit) })?)
}

/// All descriptors but the three standard ones close when this process executes a program. Between fork and exec nothing else
/// needs them.
#[allow(unsafe_code)] // rustix has no close_range(2), and no fcntl(2) on descriptors that somebody else owns.
fn close_all_at_exec() {
    const FIRST: u32 = 3;
    let flag = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
    // SAFETY: takes three integers, and closes nothing.
    if unsafe { libc::close_range(FIRST, u32::MAX, flag) } == 0 {
        return;
    }
    // A kernel before 5.11 does not know the flag.
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20).min(1 << 20);
    for fd in FIRST..most as u32 {
        // SAFETY: the same; a number that is not open is an error that does not matter.
        unsafe { libc::fcntl(fd as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::process::Stdio;

    use rustix::pipe::{PipeFlags, pipe_with};
    use rustix::process::{Pid, Signal};

    use super::*;

    /// As a shell leaves descriptors open: `exec 9>&1`.
    #[test]
    fn a_process_that_outlives_us_has_only_its_own_descriptors() {
        let (reader, callers) = pipe_with(PipeFlags::empty()).unwrap();
        let (_, high) = pipe_with(PipeFlags::empty()).unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(high, 900).unwrap();
        fcntl_setfd(&high, FdFlags::empty()).unwrap();
        let given = tempfile::tempfile().unwrap();
        let number = given.as_raw_fd();
        let mut command = Command::new("/bin/sleep");
        command.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let pid = Pid::from_raw(spawn_detached(command, vec![given.into()]).unwrap() as i32).unwrap();
        // It is a child of this test, however detached; a panic must not leave it.
        let seen = std::panic::catch_unwind(|| {
            drop(callers);
            let mut open: Vec<i32> = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
                .collect();
            open.sort_unstable();
            rustix::io::ioctl_fionbio(&reader, true).unwrap();
            (open, File::from(reader).read(&mut [0]).map_err(|error| error.kind()))
        });
        let session = rustix::process::getsid(Some(pid));
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        let (open, at_end) = seen.unwrap();
        assert_eq!(open, [0, 1, 2, number]);
        assert_eq!(at_end, Ok(0), "the reader of the caller's pipe sees its end");
        assert_eq!(session, Ok(pid));
    }

    #[test]
    fn a_process_that_outlives_us_writes_short_files_and_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut command = Command::new("/bin/dd");
        command.args(["if=/dev/zero", "bs=1M", "count=32"]).arg(format!("of={}", path.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let pid = Pid::from_raw(spawn_detached(command, Vec::new()).unwrap() as i32).unwrap();
        let ended = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        // dd's own failure, and no signal.
        assert_eq!(ended.unwrap().1.exit_status(), Some(1));
        assert_eq!(fs::metadata(path).unwrap().len(), FILE_MAX);
    }
}
