//! `costs`: operations on counters, each in two lengths, for somebody outside to say what they cost.
//!
//! ```text
//! costs [NAME]..    run the operations whose names begin with one of NAME, or all; a whole name means that one alone
//! costs --list      their names
//! ```
//!
//! Before and after each length it writes a line to standard output and waits for one on standard input, so that
//! whoever looks at it does so while it stands still (see `tests::mark`). As a machine's first program it does that on the
//! console, where a VMM has no agent of ours to start it. What cannot be done in this guest is said, with
//! the reason, and not done.

mod accuracy;
mod cpu;
mod first;
mod msr;
mod operation;
mod perf;
mod perfctr;
mod plain;
mod programs;
mod switch;

use std::process::ExitCode;
use std::time::Duration;

use accuracy::interface::{TRY_PAGE, try_page};
use operation::Operation;

/// After so long a kernel is done with its start.
const QUIET: Duration = Duration::from_secs(3);

fn operations() -> impl Iterator<Item = Operation> {
    plain::operations()
        .into_iter()
        .chain(switch::operations())
        .chain(perfctr::operations())
        .chain(perf::operations())
        .chain(programs::operations())
        .chain(msr::operations())
        .chain(switch::working())
        .chain(plain::sampled())
        .chain(perfctr::sampled())
        .chain(perf::sampled())
        .chain(switch::without_driver())
}

fn names() -> Vec<String> {
    let checks = accuracy::checks().into_iter().map(|check| check.name);
    checks.chain(operations().map(|operation| operation.name.to_owned())).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [only] if only == "--list" => {
            names().iter().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
        [only] if only == TRY_PAGE => match try_page() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        [only] if only == programs::NOTHING => ExitCode::SUCCESS,
        _ if std::process::id() == 1 => first::run(operate_all),
        _ => operate_all(&arguments),
    }
}

fn operate_all(arguments: &[String]) -> ExitCode {
    let names = names();
    let wanted = |name: &str| {
        let means = |argument: &String| {
            name == argument || name.starts_with(argument.as_str()) && !names.contains(argument)
        };
        arguments.is_empty() || arguments.iter().any(means)
    };
    if !names.iter().any(|name| wanted(name)) {
        eprintln!("costs: no such operation; `costs --list` names them");
        return ExitCode::from(2);
    }
    // Kernels have things to do for some time after their start.
    std::thread::sleep(QUIET);
    let mut failed = false;
    for check in accuracy::checks().into_iter().filter(|check| wanted(&check.name)) {
        failed |= check.run().is_err();
    }
    // The last operation unloads the driver.
    for operation in operations().filter(|operation| wanted(operation.name)) {
        // In a thread of its own: it begins without counters, and leaves none behind.
        let outcome = std::thread::spawn(move || operation.measure()).join();
        failed |= !matches!(outcome, Ok(Ok(())));
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
