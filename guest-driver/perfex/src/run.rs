//! Running the command under counters.

#![allow(unsafe_code)] // Code between fork and exec, and signal dispositions.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, bail};
use libvperfctr::layout::{SumCtrs, VperfctrControl};
use libvperfctr::{Call, Error, Vperfctr, pass};
use rustix::io::Errno;

use crate::command;

/// A command that has run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) sums: SumCtrs,
    status: ExitStatus,
}

impl Ended {
    /// The command's own status; 1 with a message if it was killed, as perfex always had it.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if let Some(signal) = self.status.signal() {
            let core = if self.status.core_dumped() { " (core dumped)" } else { "" };
            eprintln!("perfex: command was killed by signal {signal}{core}");
        }
        ExitCode::from(self.status.code().map_or(1, |code| code as u8))
    }
}

/// Run `command` with `control` and wait for its end.
pub(crate) fn under_counters(command: &[OsString], control: &VperfctrControl) -> Result<Ended> {
    let Some((name, arguments)) = command.split_first() else { bail!("command missing") };
    let file = command::find(name)?;
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
    let control = *control;
    let mut command = Command::new(&file);
    command.arg0(name).args(arguments);
    // SAFETY: the closure runs between fork and exec of a process with one thread. It makes system calls on
    // memory it has and allocates nothing on its way to success.
    unsafe { command.pre_exec(move || set_up(&theirs, &control)) };
    let spawned = command.spawn();
    // The child's end of the socket closes with `command`, so that a child that never sent is seen as an end.
    drop(command);
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Err(explain(error, &ours, &file)),
    };
    let state = pass::receive(&ours).context("the child passed no counters")?;
    ignore_keyboard_signals();
    let status = child.wait().context("cannot wait for the command")?;
    Ok(Ended { sums: Vperfctr::from(state).sums()?, status })
}

/// What the child sends after its descriptor when the driver has refused the control.
const REFUSED: u8 = b'r';

/// In the child: make the counters, hand them to the parent, start them. Nothing comes after the start but the
/// exec, which closes the child's descriptors.
fn set_up(mut parent: &UnixStream, control: &VperfctrControl) -> io::Result<()> {
    let state = Vperfctr::open(0, true).map_err(to_io)?;
    rustix::io::fcntl_setfd(&state, rustix::io::FdFlags::CLOEXEC)?;
    pass::send(parent, state.as_fd())?;
    if let Err(error) = state.control(control) {
        parent.write_all(&[REFUSED])?;
        return Err(to_io(error));
    }
    // Closing it here would be counted; the exec closes it.
    std::mem::forget(state);
    Ok(())
}

fn to_io(error: Error) -> io::Error {
    error.errno().into()
}

/// Why the child failed. Only an error number comes back from it; what it had sent before says which step that
/// belongs to.
fn explain(error: io::Error, mut ours: &UnixStream, file: &Path) -> anyhow::Error {
    let sent = pass::receive(ours).is_ok();
    let refused = sent && ours.read(&mut [0]).is_ok_and(|bytes| bytes == 1);
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) if !sent => Call::Open.failed(errno).into(),
        Some(errno) if refused => Call::Control.failed(errno).into(),
        _ => anyhow::Error::new(error).context(format!("cannot execute {}", file.display())),
    }
}

/// ^C and ^\ are for the command; perfex stays to print its counts, as time(1) does.
fn ignore_keyboard_signals() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(raw: i32) -> Ended {
        Ended { sums: SumCtrs::default(), status: ExitStatus::from_raw(raw) }
    }

    #[test]
    fn the_status_is_the_commands_and_1_for_a_signal() {
        let code = |raw| format!("{:?}", ended(raw).exit_code());
        assert_eq!(code(0), format!("{:?}", ExitCode::from(0)));
        assert_eq!(code(77 << 8), format!("{:?}", ExitCode::from(77)));
        assert_eq!(code(libc::SIGKILL), format!("{:?}", ExitCode::from(1)));
    }

    #[test]
    fn a_command_that_is_nowhere_is_not_forked_for() {
        let error = under_counters(&["no-such-command-anywhere".into()], &VperfctrControl::default());
        assert!(error.unwrap_err().to_string().contains("not found in PATH"));
    }
}
