//! `pmctest`: checks of the perfctr interface, from inside a guest.
//!
//! ```text
//! pmctest [NAME]..      run the checks whose names begin with one of NAME, or all; one line each:
//!                       `ok NAME` or `FAIL NAME reason`
//! pmctest --list        their names
//! ```
//!
//! Exit status: 0 if all passed, 1 if one failed, 2 if there is no such check. Needs root for the checks of the
//! door, and a guest with a K7 or K8 PMU for all that count.
//!
//! Every check runs in a thread of its own, so it begins without counters and leaves none behind.

mod checks;
mod expect;
mod interrupting;
mod measured;
mod older;

use std::process::ExitCode;
use std::thread;

use anyhow::Result;

/// One named check.
struct Check {
    name: &'static str,
    run: fn() -> Result<()>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => {
            checks::all().for_each(|check| println!("{}", check.name));
            ExitCode::SUCCESS
        }
        // What the checks of fork, exec and passing start.
        ["--child", role] => match checks::child(role) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("pmctest --child {role}: {error:#}");
                ExitCode::FAILURE
            }
        },
        ref names => run(names),
    }
}

fn run(names: &[&str]) -> ExitCode {
    let wanted = |check: &&Check| names.is_empty() || names.iter().any(|name| check.name.starts_with(name));
    let (mut ran, mut failed) = (0, 0);
    for check in checks::all().filter(wanted) {
        ran += 1;
        match thread::spawn(check.run).join() {
            Ok(Ok(())) => println!("ok {}", check.name),
            Ok(Err(error)) => {
                failed += 1;
                println!("FAIL {} {error:#}", check.name);
            }
            Err(_) => {
                failed += 1;
                println!("FAIL {} panicked; the message is on standard error", check.name);
            }
        }
    }
    match (ran, failed) {
        (0, _) => {
            eprintln!("pmctest: no check is called {names:?}; pmctest --list names them");
            ExitCode::from(2)
        }
        (_, 0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
