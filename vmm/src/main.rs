//! The command `perfvisor`.

use std::process::ExitCode;

use clap::Parser;
use perfvisor::cli::{Cli, Command};
use perfvisor::command::dispatch;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(&cli) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("perfvisor: {e:#}");
            // The other statuses of these are their command's.
            let own_failure = match cli.command {
                Command::Run(_) | Command::Lab(_) => session::EXIT_OWN_FAILURE,
                _ => 1,
            };
            ExitCode::from(own_failure)
        }
    }
}
