//! Ends everything that belongs to a session of processes.

use std::fs;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long killed processes may take to go. Only one stuck in the kernel needs more than milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Kills every process whose session id is `leader`'s and waits until they are gone. A program that made a
/// session of its own, as daemons do, is left alone.
pub fn kill_session(leader: Pid) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // pidfds, because the numbers may belong to others by the time the signal is sent.
        let members: Vec<_> = living_members(leader)
            .into_iter()
            .filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .filter(|pidfd| pidfd_send_signal(pidfd, Signal::KILL).is_ok())
            .collect();
        let left = deadline.saturating_duration_since(Instant::now());
        if members.is_empty() || left.is_zero() {
            return;
        }
        for member in &members {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(member, PollFlags::IN)], Some(&timeout));
        }
        // Once more: one of them may have forked while we looked.
    }
}

fn living_members(leader: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter(|&pid| {
            fs::read(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| living_in(&stat) == Some(leader.as_raw_nonzero().get()))
        })
        .collect()
}

/// The session id in a line of /proc/PID/stat, unless the process is a zombie or dead.
fn living_in(stat: &[u8]) -> Option<i32> {
    // The name, in parentheses, may contain anything; the fields behind it are state, ppid, pgrp, session.
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::living_in;

    #[test]
    fn reads_stat_lines() {
        assert_eq!(living_in(b"12 (a) b) S 1 12 7 0 -1"), Some(7));
        assert_eq!(living_in(b"12 (a) Z 1 12 7 0 -1"), None);
        assert_eq!(living_in(b"12 (a"), None);
        assert_eq!(living_in(b""), None);
    }
}
