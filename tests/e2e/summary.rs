//! What the lines of tests do not say, for the end of the output: guests that were booted again, and what took how long.
//! `cargo xtask test` reads these lines; see `TestOutput` there.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One guest that is lost is booted again, so that the run says what else it can. A second one is no accident.
const MAX_RETRIES: usize = 1;

struct Summary {
    retries: Vec<(String, String)>,
    times: Vec<(String, Duration)>,
}

static SUMMARY: Mutex<Summary> = Mutex::new(Summary { retries: Vec::new(), times: Vec::new() });

fn summary() -> MutexGuard<'static, Summary> {
    // A test that panics has left nothing half done here.
    SUMMARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `name` did not come to its end for this reason and was tried again.
pub(crate) fn retried(name: &str, why: &str) {
    // At once too: a run that is cut short prints no summary.
    eprintln!("{name}: {why}; tried again");
    summary().retries.push((name.to_owned(), why.to_owned()));
}

/// `name` took so long.
pub(crate) fn took(name: &str, time: Duration) {
    summary().times.push((name.to_owned(), time));
}

/// Runs a test of its own and notes how long it took.
pub(crate) fn timed<T>(name: &str, test: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = test();
    took(name, started.elapsed());
    result
}

/// Prints it all; false if more was tried again than may be.
pub(crate) fn print() -> bool {
    let summary = summary();
    for (name, time) in &summary.times {
        println!("took: {name}: {:.1} s", time.as_secs_f64());
    }
    for (name, why) in &summary.retries {
        println!("retried: {name}: {why}");
    }
    summary.retries.len() <= MAX_RETRIES
}
