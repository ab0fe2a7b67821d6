//! The command `perfvisor`.

use std::process::ExitCode;

use perfvisor::cli::{Cli, Command};
use perfvisor::command::dispatch;
use perfvisor::say::say;
use session::EXIT_OWN_FAILURE;

fn main() -> ExitCode {
    let (cli, given) = match Cli::read() {
        Ok(read) => read,
        Err(e) => return refused(&e),
    };
    // Nothing that perfvisor starts needs more than perfvisor has. It fails on no kernel that perfvisor runs on.
    let _ = rustix::thread::set_no_new_privs(true);
    match dispatch(&cli, &given) {
        Ok(code) => code,
        Err(e) => {
            say(format_args!("{e:#}"));
            let passes_statuses_on = matches!(cli.command, Command::Run(_) | Command::Lab(_));
            ExitCode::from(if passes_statuses_on { EXIT_OWN_FAILURE } else { 1 })
        }
    }
}

/// A command line that cannot be understood, or asks for help. The usual status 2 could be the status of the command
/// in the guest, so `run` and `lab` have their own.
fn refused(e: &clap::Error) -> ExitCode {
    // A closed standard error leaves nowhere to complain to.
    let _ = e.print();
    // Words need not be UTF-8; the commands are.
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    match words.into_iter().find(|word| !word.starts_with('-')).as_deref() {
        _ if !e.use_stderr() => ExitCode::SUCCESS,
        Some("run" | "lab") => ExitCode::from(EXIT_OWN_FAILURE),
        _ => ExitCode::from(2),
    }
}
