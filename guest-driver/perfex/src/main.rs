//! `perfex`: run a command with performance counters and print their final values.
//!
//! ```text
//! perfex [-d|-x] [-e event].. [--p4pe=value] [--p4pmv=value] [-o file] command [argument]..
//! perfex -i | -l | -L | -h
//! ```
//!
//! How it works: a child process makes counters for itself, passes a descriptor on them back over a socket, starts
//! them and executes the command. The counters survive the exec, and the descriptor outlives the child, so after
//! the command's end its final counts are read from it. Only the thread that was the command is counted:
//! settings are not inherited by the threads and processes it starts (virtual.txt, Limitations).
//!
//! The counts include what the child executes between starting its counters and the exec: a few dozen
//! instructions, the same number at every run of the same command line.
//!
//! Exit status: the command's own. 1 when the command was killed by a signal, which a message names; the counts up
//! to then are printed all the same (the perfex of 2005 lost them). 1 for perfex's own errors.

mod arguments;
mod command;
mod event;
mod event_set;
mod info;
mod number;
mod report;
mod run;

use std::process::ExitCode;

use anyhow::{Context, Result};
use libvperfctr::{Driver, a_mode, layout::feature};

use arguments::{Arguments, Request};

fn main() -> ExitCode {
    let arguments = match Arguments::from_command_line() {
        Ok(arguments) => arguments,
        Err(refusal) => {
            // Help and version are "errors" of the parser too, on stdout and with status 0.
            let _ = refusal.print();
            return if refusal.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match perfex(&arguments) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("perfex: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perfex(arguments: &Arguments) -> Result<ExitCode> {
    // What is wrong with the arguments is said first: it needs no driver to be seen.
    let request = arguments.request()?;
    let driver = Driver::query()?;
    match request {
        Request::Info => print!("{}", info::describe(&driver)),
        Request::List => print!("{}", event_set::list(&driver, false)),
        Request::LongList => print!("{}", event_set::list(&driver, true)),
        Request::Run { events, p4, output, command } => {
            let mut control = a_mode(driver.info.cpu_features & feature::RDTSC != 0, &events)?;
            control.cpu_control.p4.pebs_enable = p4.pebs_enable;
            control.cpu_control.p4.pebs_matrix_vert = p4.pebs_matrix_vert;
            let mut output = report::Output::open(output).context("cannot open the output file")?;
            let ended = run::under_counters(command, &control)?;
            output
                .write(&report::sums(&control.cpu_control, &ended.sums))
                .context("cannot write the counts")?;
            return Ok(ended.exit_code());
        }
    }
    Ok(ExitCode::SUCCESS)
}
