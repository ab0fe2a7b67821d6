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
use libvperfctr::layout::VperfctrControl;
use libvperfctr::{Call, Error, Vperfctr, pass};
use rustix::io::Errno;

use crate::command;
use crate::counted::{Counted, Plan, Run};

/// The command's own status; 1 if it was killed, as perfex always had it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().map_or(1, |code| code as u8))
}

/// What the exit status does not tell.
pub(crate) fn say_if_killed(status: ExitStatus) {
    if let Some(signal) = status.signal() {
        let core = if status.core_dumped() { " (core dumped)" } else { "" };
        eprintln!("perfex: command was killed by signal {signal}{core}");
    }
}

/// Run `command` with the plan's control `times` times, one after the other, each to its end. No further one is started
/// when the keyboard's signals have ended one.
pub(crate) fn repeatedly(command: &[OsString], plan: &Plan, times: u32) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for _ in 0..times {
        let run = under_counters(command, plan)?;
        let signal = run.status.and_then(|status| status.signal());
        runs.push(run);
        if matches!(signal, Some(libc::SIGINT | libc::SIGQUIT)) {
            break;
        }
    }
    Ok(runs)
}

fn under_counters(command: &[OsString], plan: &Plan) -> Result<Run> {
    let Some((name, arguments)) = command.split_first() else { bail!("command missing") };
    let file = command::find(name)?;
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
    let control = plan.control;
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
    let state = Vperfctr::from(pass::receive(&ours).context("the child passed no counters")?);
    let ignored = KeyboardSignals::ignore();
    let status = child.wait().context("cannot wait for the command")?;
    drop(ignored);
    let children = if plan.inherits() { Some(state.children_sums()?) } else { None };
    let counted = Counted { own: state.sums()?, children };
    Ok(Run { counted, status: Some(status), threads: Vec::new() })
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

/// ^C and ^\ are for the command while this lives; perfex stays to print its counts, as time(1) does. The next
/// command is started with what was before.
struct KeyboardSignals([(libc::c_int, libc::sighandler_t); 2]);

impl KeyboardSignals {
    fn ignore() -> Self {
        Self([libc::SIGINT, libc::SIGQUIT].map(|signal| {
            // SAFETY: ignoring a signal runs no code of ours.
            (signal, unsafe { libc::signal(signal, libc::SIG_IGN) })
        }))
    }
}

impl Drop for KeyboardSignals {
    fn drop(&mut self) {
        for (signal, before) in self.0 {
            // SAFETY: what was there before: the default or, inherited, to ignore it.
            unsafe { libc::signal(signal, before) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::plan;

    #[test]
    fn the_status_is_the_commands_and_1_for_a_signal() {
        let code = |raw| format!("{:?}", exit_code(ExitStatus::from_raw(raw)));
        assert_eq!(code(0), format!("{:?}", ExitCode::from(0)));
        assert_eq!(code(77 << 8), format!("{:?}", ExitCode::from(77)));
        assert_eq!(code(libc::SIGKILL), format!("{:?}", ExitCode::from(1)));
    }

    #[test]
    fn a_command_that_is_nowhere_is_not_forked_for() {
        let error = repeatedly(&["no-such-command-anywhere".into()], &plan(), 1);
        assert!(error.unwrap_err().to_string().contains("not found in PATH"));
    }
}
