//! Stopping other threads, as the calls on their counters require.
//!
//! virtual.txt: a state of another thread may be opened, controlled, read, unlinked and resumed while that thread is
//! "stopped and under ptrace control by the current thread". A [`Stopped`] is such a thread:
//!
//! ```no_run
//! use libvperfctr::{Vperfctr, a_mode, trace};
//!
//! # fn count(pid: i32, control: libvperfctr::layout::VperfctrControl) -> Result<(), Box<dyn std::error::Error>> {
//! let mut states = Vec::new();
//! for thread in trace::stop_all(pid)? {
//!     let state = Vperfctr::open(thread.tid(), true)?;
//!     state.control(&control)?;
//!     states.push(state);
//! }   // each runs on, counting, as its `thread` is dropped
//! # Ok(())
//! # }
//! ```
//!
//! A system call that a thread is blocked in is restarted when it goes on, except for those of signal(7), "Interruption
//! of system calls and library functions by stop signals", such as epoll_wait(2), which return EINTR.

#![allow(unsafe_code)] // ptrace(2) and waitpid(2) for threads.

use std::collections::BTreeSet;
use std::io;
use std::marker::PhantomData;
use std::ptr::null_mut;

/// A thread that stands still until this is dropped.
///
/// Not `Send`: ptrace knows the tracing thread, not its process.
#[derive(Debug)]
pub struct Stopped {
    tid: i32,
    /// The signal it was about to get when it was stopped.
    signal: i32,
    thread: PhantomData<*const ()>,
}

impl Stopped {
    /// Stop thread `tid` of another process, wherever it is (PTRACE_SEIZE and PTRACE_INTERRUPT).
    ///
    /// ESRCH: there is no such thread, any more perhaps. EPERM: ptrace may not be used on it (ptrace(2), "Ptrace
    /// access mode checking"; `kernel.yama.ptrace_scope`), somebody else traces it, or it is one of this process.
    pub fn stop(tid: i32) -> io::Result<Self> {
        if tid <= 0 {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if let Err(error) = ptrace(libc::PTRACE_SEIZE, tid, 0) {
            // What a thread that has ended, and is not reaped, says as well.
            let gone = error.raw_os_error() == Some(libc::EPERM) && has_ended(tid);
            return Err(if gone { io::Error::from_raw_os_error(libc::ESRCH) } else { error });
        }
        // From here on dropping it detaches.
        let mut stopped = Self { tid, signal: 0, thread: PhantomData };
        ptrace(libc::PTRACE_INTERRUPT, tid, 0)?;
        stopped.signal = wait_until_stopped(tid)?;
        Ok(stopped)
    }

    /// The thread's id.
    pub fn tid(&self) -> i32 {
        self.tid
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Fails only if the thread was killed meanwhile.
        let _ = ptrace(libc::PTRACE_DETACH, self.tid, self.signal);
    }
}

/// The threads of a process, in no particular order. ESRCH if it is gone.
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::from_raw_os_error(libc::ESRCH),
        _ => error,
    })?;
    entries
        .map(|entry| {
            let name = entry?.file_name();
            name.to_str()
                .and_then(|name| name.parse().ok())
                .ok_or_else(|| io::Error::other("a task without a number"))
        })
        .collect()
}

/// Stop all threads of a process, those as well that it starts meanwhile. Threads that end meanwhile are left out.
/// ESRCH if none is left; if one cannot be stopped, all go on.
pub fn stop_all(pid: i32) -> io::Result<Vec<Stopped>> {
    let mut stopped: Vec<Stopped> = Vec::new();
    let mut seen = BTreeSet::new();
    loop {
        // Only a thread that was not stopped yet could have started another one since.
        let new: Vec<i32> = threads(pid)?.into_iter().filter(|tid| seen.insert(*tid)).collect();
        if new.is_empty() {
            break;
        }
        for tid in new {
            match Stopped::stop(tid) {
                Ok(thread) => stopped.push(thread),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
    }
    if stopped.is_empty() { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(stopped) }
}

fn ptrace(request: libc::c_uint, tid: i32, data: i32) -> io::Result<()> {
    // SAFETY: none of the requests made here reads or writes memory of ours.
    let answer =
        unsafe { libc::ptrace(request, tid, null_mut::<libc::c_void>(), data as usize as *mut libc::c_void) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The signal that its stop is about to deliver, 0 if it is another kind of stop.
fn wait_until_stopped(tid: i32) -> io::Result<i32> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is ours. __WALL: threads are waited for as well as processes.
        if unsafe { libc::waitpid(tid, &mut status, libc::__WALL) } == tid {
            return match libc::WIFSTOPPED(status) {
                // An event in the high half (PTRACE_EVENT_STOP): no signal comes with it.
                true if status >> 16 != 0 => Ok(0),
                true => Ok(libc::WSTOPSIG(status)),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            };
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => return Err(error),
        }
    }
}

/// Whether it is a zombie, or gone.
fn has_ended(tid: i32) -> bool {
    // Its name, in parentheses, may contain anything; the state is the letter after it (proc(5)).
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{tid}/stat")) else { return true };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn state(pid: i32) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    fn errno<T>(result: io::Result<T>) -> Option<i32> {
        result.err().unwrap().raw_os_error()
    }

    fn start(script: &str) -> (Child, i32) {
        let child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        (child, pid)
    }

    #[test]
    fn a_process_stands_still_and_goes_on() {
        let (mut child, pid) = start("read line; exit 7");
        let stopped = stop_all(pid).unwrap();
        assert_eq!(stopped.iter().map(Stopped::tid).collect::<Vec<_>>(), [pid]);
        assert_eq!(state(pid), 't');
        assert_eq!(errno(Stopped::stop(pid)), Some(libc::EPERM), "it is traced already");
        drop(stopped);
        assert_ne!(state(pid), 't');
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_signal_that_came_meanwhile_is_not_lost() {
        use std::io::Read;
        let (mut child, pid) = start("trap 'exit 7' USR1; echo x; while :; do :; done");
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        for _ in 0..3 {
            drop(Stopped::stop(pid).unwrap());
        }
        let stopped = Stopped::stop(pid).unwrap();
        // SAFETY: no memory involved.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGUSR1) }, 0);
        drop(stopped);
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }

    #[test]
    fn what_has_ended_is_not_there() {
        let (mut child, pid) = start("exit 0");
        while !has_ended(pid) {
            std::thread::yield_now();
        }
        assert_eq!(errno(stop_all(pid)), Some(libc::ESRCH), "a zombie");
        child.wait().unwrap();
        assert_eq!(errno(stop_all(pid)), Some(libc::ESRCH));
        assert_eq!(errno(Stopped::stop(0)), Some(libc::ESRCH));
        assert_eq!(errno(Stopped::stop(-1)), Some(libc::ESRCH));
    }
}
