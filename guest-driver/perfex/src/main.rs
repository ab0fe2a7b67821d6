//! `perfex`: run a command with performance counters and print their final values.
//!
//! ```text
//! perfex [-d|-x] [-e event].. [--p4pe=value] [--p4pmv=value] [-o file] [--format text|json] [-r n] [--inherit]
//!        command [argument].. | -p pid [--for seconds]
//! perfex -i | -l | -L | -h
//! ```
//!
//! How it works: a child process makes counters for itself, passes a descriptor on them back over a socket, starts
//! them and executes the command. The counters survive the exec, and the descriptor outlives the child, so after
//! the command's end its final counts are read from it. Only the thread that was the command is counted, unless
//! `--inherit` asks for the threads and processes it starts as well; what these counted is added as they end.
//! A process that runs already is counted by way of ptrace ([`attach`]).
//!
//! An event on its way: [`arguments`] takes its text, [`event`] reads it, [`choices`] knows where and how this processor
//! counts it (names from [`event_set`]), [`allocate`] decides, [`counted`] makes a control of it.
//!
//! The counts include what the child executes between starting its counters and the exec: a few dozen
//! instructions, the same number at every run of the same command line.
//!
//! Exit status: the command's own. 1 when the command was killed by a signal, which a message names; the counts up
//! to then are printed all the same (the perfex of 2005 lost them). 1 for perfex's own errors.

mod allocate;
mod arguments;
mod attach;
mod choices;
mod command;
mod counted;
mod event;
mod event_set;
mod info;
mod json;
mod number;
mod report;
mod run;
mod statistics;

use std::process::ExitCode;

use anyhow::{Context, Result};
use libvperfctr::Driver;

use arguments::{Arguments, Counting, Format, Request, Target};
use counted::Plan;
use json::Subject;

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
        Request::Count(counting) => return count(&driver, &counting),
    }
    Ok(ExitCode::SUCCESS)
}

fn count(driver: &Driver, counting: &Counting<'_>) -> Result<ExitCode> {
    let plan = Plan::new(counting, driver)?;
    let mut output = report::Output::open(counting.output).context("cannot open the output file")?;
    let (subject, runs, repeated) = match counting.target {
        Target::Command { words, repeat } => {
            (Subject::Command(words), run::repeatedly(words, &plan, repeat.unwrap_or(1))?, repeat.is_some())
        }
        Target::Process { pid, time } => {
            (Subject::Process(pid), vec![attach::watch(driver, pid, &plan, time)?], false)
        }
    };
    let text = match (counting.format, &runs[..]) {
        (Format::Json, _) => json::document(driver, subject, &plan, &runs, repeated)?,
        (Format::Text, [run]) if !repeated => report::sums(&plan, &run.counted.total()),
        (Format::Text, _) => report::statistics(&plan, &runs),
    };
    output.write(&text).context("cannot write the counts")?;
    let failed = runs.iter().filter_map(|run| run.status).find(|status| !status.success());
    if counting.format == Format::Text {
        // The JSON has the signal, and stderr to itself as far as perfex goes.
        failed.inspect(|status| run::say_if_killed(*status));
    }
    Ok(failed.map_or(ExitCode::SUCCESS, run::exit_code))
}
