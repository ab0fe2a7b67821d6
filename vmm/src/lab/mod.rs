//! The lab: a machine with counters where the host has none.
//!
//! `perfvisor --lab ...` runs the same command line inside a machine that QEMU emulates, as if that were the host.
//! One machine per user serves all callers: whoever comes first starts it, each takes one of its session ports, and
//! it powers itself off when nobody was connected for a while.
//!
//! * [`machine`]: is it running, start it, stop it;
//! * [`port`]: a session port of one's own;
//! * [`client`]: moves bytes, forwards signals, keeps time.
//!
//! Nothing here relies on process ids or on files that may be stale: a machine runs as long as QEMU holds the
//! lock on `alive`, and a port is taken as long as a client holds the lock on its file. Both end with their
//! processes, however these end.

mod client;
mod config;
mod detached;
mod machine;
mod port;

use std::io;
use std::process::ExitCode;

use session::EXIT_OWN_FAILURE;

use crate::guest_session::{Command, GuestSession, Signals};
use crate::say::say;
use client::End;
pub use config::{LabConfig, PORTS};
use machine::{LabMachine, Running};

/// Said when the machine that ran was gone before its agent answered, for whatever reason.
const ENDED_MEANWHILE: &str = "the running lab machine ended before it answered; another one is started";

/// Runs a command in the lab, joined to this process's standard streams, and returns its exit status.
///
/// Failures of the lab itself are errors; their text names the log.
pub fn run(config: &LabConfig, command: Command) -> io::Result<ExitCode> {
    let machine = LabMachine::new(config)?;
    let mut session = GuestSession::new(command)?;
    let mut signals = Signals::new()?;
    // A machine that was about to power off hangs up on us before its agent has answered. The next one does not.
    for _ in 0..3 {
        let port = port::Port::take(&machine)?;
        let running = machine.ensure_running()?;
        let Some(stream) = port.connect()? else {
            machine.await_end()?;
            say(ENDED_MEANWHILE);
            continue;
        };
        match client::attend(&stream, &mut session, &mut signals, config.start_timeout)? {
            End::Outcome(outcome) => {
                explain(&outcome, &machine);
                return Ok(ExitCode::from(outcome.code()));
            }
            End::Signal(number) => return Ok(ExitCode::from(128u8.wrapping_add(number as u8))),
            End::HungUp if running == Running::Already => {
                machine.await_end()?;
                say(ENDED_MEANWHILE);
            }
            End::HungUp => return Err(machine.failure("the lab machine ended before its agent answered")),
            End::Timeout => {
                machine.stop()?;
                let seconds = config.start_timeout.as_secs();
                return Err(machine
                    .failure(&format!("the lab machine did not answer within {seconds} s and was stopped")));
            }
        }
    }
    Err(machine.failure("the lab machine ended three times before its agent answered"))
}

fn explain(outcome: &session::Outcome, machine: &LabMachine<'_>) {
    match outcome {
        session::Outcome::Exited(_) => {}
        session::Outcome::NotStarted(error) => say(&error.message),
        session::Outcome::Failed(reason) => {
            debug_assert_eq!(outcome.code(), EXIT_OWN_FAILURE);
            say(format_args!("{reason} (the lab's console is in {})", machine.console_log().display()));
        }
    }
}

/// Ends the lab machine, if it runs, whoever uses it.
pub fn stop(config: &LabConfig) -> io::Result<()> {
    LabMachine::new(config)?.stop()
}

/// True if the lab machine runs.
pub fn is_running(config: &LabConfig) -> io::Result<bool> {
    LabMachine::new(config)?.is_running()
}
