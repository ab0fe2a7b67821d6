//! `pmctest`: checks of the perfctr interface, from inside a guest.
//!
//! ```text
//! pmctest [NAME]..      run the checks whose names begin with one of NAME, or all; one line each:
//!                       `ok NAME SECONDS s`, `FAIL NAME reason` or `not run: NAME: reason`
//! pmctest --list        their names
//! pmctest --not-run pv|registers CPUS
//!                       those that are not run with such a low-level driver and so many CPUs: `NAME: reason`
//! pmctest --stress SECONDS [SEED]
//!                       64 threads that do everything at once; the same lines, at the end
//! pmctest --fuzz SECONDS [SEED]
//!                       calls with mutated arguments, by users without privileges; the same lines, at the end
//! ```
//!
//! PMCTEST_SOURCE=module says that perfvisor counts this guest with its own host module: then no overflow may be late.
//!
//! Exit status: 0 if all that were run passed, 1 if one failed, 2 if there is no such check. Needs root for the checks of the
//! paravirtual interface, and a guest with a K7 or K8 PMU, or KVM's own of an AMD host, for all that count.
//!
//! `CONFORMANCE.md` says which sentence of perfctr's documents is held by which checks.
//!
//! Every check runs in a thread of its own, so it begins without counters and leaves none behind. The next begins when that
//! thread is gone.

mod check;
mod checks;
mod expect;
mod forked;
mod fuzz;
mod interrupting;
mod kernel_log;
mod loaded;
mod low_level;
mod measured;
mod memory;
mod older;
mod placed;
mod random;
mod sampled;
mod stress;

use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Result, anyhow, ensure};

use check::{Check, verdict_with};
use low_level::LowLevel;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--list"] => {
            checks::all().for_each(|check| println!("{}", check.name));
            ExitCode::SUCCESS
        }
        ["--not-run", word, cpus] => match (LowLevel::named(word), cpus.parse()) {
            (Some(low_level), Ok(cpus)) => {
                let names = checks::all().map(|check| check.name);
                for (name, reason) in names.filter_map(|name| Some((name, low_level.not_run(name, cpus)?))) {
                    println!("{name}: {reason}");
                }
                ExitCode::SUCCESS
            }
            _ => {
                eprintln!("pmctest: --not-run pv|registers CPUS");
                ExitCode::from(2)
            }
        },
        ["--stress", seconds, ref seed @ ..] if seed.len() < 2 => long_run(stress::run, seconds, seed),
        ["--fuzz", seconds, ref seed @ ..] if seed.len() < 2 => long_run(fuzz::run, seconds, seed),
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

/// A run of a length and with a seed, which is printed, so that it can be repeated as far as the scheduler lets it.
fn long_run(run: fn(Duration, u64) -> bool, seconds: &str, seed: &[&str]) -> ExitCode {
    let seed = seed.first().map_or_else(|| Ok(random::any_seed()), |seed| seed.parse());
    match (seconds.parse(), seed) {
        (Ok(seconds), Ok(seed)) => {
            println!("seed {seed}");
            ExitCode::from(u8::from(!run(Duration::from_secs(seconds), seed)))
        }
        _ => {
            eprintln!("pmctest: the length is a number of seconds, and the seed a number, both decimal");
            ExitCode::from(2)
        }
    }
}

/// A thread can be joined before it has let go of its counters. What it does with them at its switches until then would
/// answer at the doorbell for a check that has put its own page there.
fn threads_are_gone() -> Result<()> {
    let patience = Instant::now() + Duration::from_secs(10);
    while fs::read_dir("/proc/self/task")?.count() > 1 {
        ensure!(Instant::now() < patience, "its threads did not end");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn run(names: &[&str]) -> ExitCode {
    let wanted = |check: &&Check| names.is_empty() || names.iter().any(|name| check.name.starts_with(name));
    let (mut ran, mut failed) = (0, 0);
    let here = LowLevel::here();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    for check in checks::all().filter(wanted) {
        ran += 1;
        if let Some(reason) = here.not_run(check.name, cpus) {
            println!("not run: {}: {reason}", check.name);
            continue;
        }
        let started = Instant::now();
        let outcome = match thread::spawn(check.run).join() {
            Ok(outcome) => outcome.and_then(|()| threads_are_gone()),
            Err(_) => Err(anyhow!("panicked; the message is on standard error")),
        };
        let time = format!(" {:.1} s", started.elapsed().as_secs_f64());
        failed += u32::from(!verdict_with(check.name, &time, &outcome));
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
