//! The command `perfvisor`.

use std::process::ExitCode;

use clap::Parser;
use perfvisor::cli::{Cli, Command};
use perfvisor::command::dispatch;
use session::EXIT_OWN_FAILURE;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return refused(&e),
    };
    match dispatch(&cli) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("perfvisor: {e:#}");
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
    let command = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    match command.as_deref() {
        _ if !e.use_stderr() => ExitCode::SUCCESS,
        Some("run" | "lab") => ExitCode::from(EXIT_OWN_FAILURE),
        _ => ExitCode::from(2),
    }
}
