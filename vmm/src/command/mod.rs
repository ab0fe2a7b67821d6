//! The commands of the command line, and where each runs.

mod bare;
mod confine;
pub mod doctor;
pub mod dump;
mod kernel;
pub mod lab;
pub mod list;
mod main_loop;
mod restart;
pub mod run;
mod sent_to_lab;
mod supervise;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, CommandFactory};

use crate::cli::{Cli, Command};
use crate::guest_session::Terminal;
use crate::machine::boot::Protocol;
use crate::place;
use crate::registry;
use crate::say::{print, say};

/// Do what the command line says; `given` is what it is read from.
pub fn dispatch(cli: &Cli, given: &ArgMatches) -> Result<ExitCode> {
    let given = given.subcommand().map_or(given, |(_, given)| given);
    match &cli.command {
        Command::Run(options) => {
            confine::named_descriptors(options).close_others();
            let bare = kernel::protocol(options)? != Protocol::Linux;
            kernel::check_options(options, bare)?;
            // Without an agent there is nobody in the guest for a terminal.
            let terminal = if bare { Terminal::No } else { options.terminal() };
            if cli.lab {
                return lab::run(options, given, terminal);
            }
            if !place::inside_lab()
                && let Some(obstacle) = place::obstacle(options.pmu.needs_counters(), !bare)
            {
                say(format_args!("{obstacle}; using the lab machine (see 'perfvisor doctor')"));
                return lab::run(options, given, terminal);
            }
            Ok(ExitCode::from(if bare { bare::run(options)? } else { run::run(options)? }))
        }
        Command::Dump(options) => {
            if cli.lab || !options.host && is_elsewhere(options.name.as_deref())? {
                return lab::dump(given);
            }
            dump::dump(options).map(|()| ExitCode::SUCCESS)
        }
        Command::List => {
            if cli.lab || is_elsewhere(None)? {
                return lab::simple("list");
            }
            list::list().map(|()| ExitCode::SUCCESS)
        }
        Command::Doctor => {
            if cli.lab {
                return lab::simple("doctor");
            }
            doctor::doctor()
        }
        Command::Lab(command) => lab::lab(command),
        Command::Completion { shell } => {
            // Into memory first: generate() panics when a write fails.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "perfvisor", &mut script);
            print(&String::from_utf8_lossy(&script)).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Whether a machine is to be looked for in the lab: it is not here, and a lab machine is running. `run` may have
/// gone there by itself, and its user need not know.
fn is_elsewhere(name: Option<&str>) -> Result<bool> {
    if place::inside_lab() {
        return Ok(false);
    }
    let directory = registry::directory()?;
    let here = match name {
        Some(name) => registry::is_running(&directory, name),
        None => !registry::running(&directory)?.is_empty(),
    };
    Ok(!here && lab::is_running())
}
