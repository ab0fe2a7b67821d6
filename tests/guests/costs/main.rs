//! `costs`: operations on counters, each in two lengths, for somebody outside to say what they cost.
//!
//! ```text
//! costs [NAME]..    run the operations whose names begin with one of NAME, or all
//! costs --list      their names
//! ```
//!
//! Before and after each length it writes a line to standard output and waits for one on standard input, so that
//! whoever looks at it does so while it stands still (see `tests::mark`). As a machine's first program it does that on the
//! console, where a VMM has no agent of ours to start it. What cannot be done in this guest is said, with
//! the reason, and not done.

mod accuracy;
mod first;
mod msr;
mod perf;
mod perfctr;
mod plain;
mod switch;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tests::mark::{Mark, say};

/// An operation; `run(n)` does it n times.
struct Operation {
    name: &'static str,
    /// Times it is done in the shorter run; the longer one is three times as long.
    length: u64,
    /// Makes what it needs, in the thread that will run it.
    prepare: fn() -> Result<Run>,
}

type Run = Box<dyn FnMut(u64) -> Result<()>>;

/// After so long a kernel is done with its start.
const SETTLED: Duration = Duration::from_secs(3);
/// Times each pair of lengths is run.
const REPEATED: u32 = 3;

fn operations() -> impl Iterator<Item = Operation> {
    plain::operations()
        .into_iter()
        .chain(switch::operations())
        .chain(perfctr::operations())
        .chain(perf::operations())
        .chain(msr::operations())
        .chain(switch::working())
        .chain(switch::without_driver())
}

fn main() -> ExitCode {
    if std::process::id() == 1 { first::run(operate_all) } else { operate_all() }
}

fn operate_all() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--list"] {
        operations().for_each(|operation| println!("{}", operation.name));
        return ExitCode::SUCCESS;
    }
    let wanted =
        |name: &str| arguments.is_empty() || arguments.iter().any(|prefix| name.starts_with(prefix.as_str()));
    // Kernels have things to do for some time after their start.
    std::thread::sleep(SETTLED);
    let (mut known, mut failed) = (false, false);
    // The last operation unloads the driver.
    match accuracy::run(&wanted) {
        Ok(any) => known |= any,
        Err(_) => failed = true,
    }
    for operation in operations().filter(|operation| wanted(operation.name)) {
        known = true;
        // In a thread of its own: it begins without counters, and leaves none behind.
        let outcome = std::thread::spawn(move || operate(&operation)).join();
        failed |= !matches!(outcome, Ok(Ok(())));
    }
    match (known, failed) {
        (false, _) => {
            eprintln!("costs: no such operation; `costs --list` names them");
            ExitCode::from(2)
        }
        (_, true) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn operate(operation: &Operation) -> Result<()> {
    let name = operation.name;
    let mut run = match (operation.prepare)() {
        Ok(run) => run,
        Err(error) => return say(&Mark::NotRun { name: name.into(), reason: format!("{error:#}") }),
    };
    // What is done once only, at the first time.
    run(operation.length)?;
    for _ in 0..REPEATED {
        for length in [operation.length, operation.length * 3] {
            say(&Mark::Begin { name: name.into(), length })?;
            run(length)?;
        }
        say(&Mark::End)?;
    }
    Ok(())
}
