//! `cargo xtask test`: everything that can be checked, in an order that finds cheap mistakes first.

mod fuzz;
mod steps;
mod tally;

use std::time::{Duration, Instant};

use anyhow::Result;
use images::layout::Layout;
use images::packages;

use steps::{STEPS, Step};
use tally::Tally;

/// Run all checks and tests, unit to end-to-end; this is also what CI runs
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A step by its name, or part of the names of tests to run.
    filter: Option<String>,

    /// Say what would be run instead of running it.
    #[arg(long)]
    list: bool,
}

/// Runs the tests; false when something failed.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let layout = Layout::open()?;
    packages::setup(&layout)?;
    let (steps, tests) = select(arguments.filter.as_deref());
    let context = steps::Context { layout, filter: tests.map(str::to_owned), list: arguments.list };
    if arguments.list {
        for step in steps {
            println!("{:<12}{}", step.name, step.what);
            if step.has_tests {
                (step.run)(&context)?;
            }
        }
        return Ok(true);
    }

    let mut total = Tally::default();
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for step in steps {
        println!("== {}: {}", step.name, step.what);
        let started = Instant::now();
        let tally = (step.run)(&context).unwrap_or_else(|error| {
            println!("{error:#}");
            Tally::failed(step.name)
        });
        total += tally;
        times.push((step.name, started.elapsed()));
    }
    total.judge_retries();
    summarise(&total, &times);
    Ok(total.failures.is_empty())
}

/// The steps to run, and the filter for the tests in them.
fn select(filter: Option<&str>) -> (Vec<&'static Step>, Option<&str>) {
    match filter {
        None => (STEPS.iter().collect(), None),
        Some(name) if STEPS.iter().any(|step| step.name == name) => {
            (STEPS.iter().filter(|step| step.name == name).collect(), None)
        }
        // Tests boot the images, so these come first; the other steps have no tests to choose from.
        Some(tests) => {
            let steps = STEPS.iter().filter(|step| step.has_tests || step.name == steps::IMAGES);
            (steps.collect(), Some(tests))
        }
    }
}

/// How many of the cases that took longest are shown.
const SLOWEST: usize = 10;

fn summarise(total: &Tally, times: &[(&str, Duration)]) {
    println!("\n== time");
    for (name, time) in times {
        println!("{:7.1} s  {name}", time.as_secs_f64());
    }
    if !total.times.is_empty() {
        println!("\n== slowest cases");
        for (name, seconds) in total.slowest(SLOWEST) {
            println!("{seconds:7.1} s  {name}");
        }
    }
    if !total.skips.is_empty() {
        println!("\n== not run");
        for (name, reason) in &total.skips {
            println!("{name}: {reason}");
        }
    }
    if !total.retries.is_empty() {
        println!("\n== tried again");
        for (name, reason) in &total.retries {
            println!("retried: {name}: {reason}");
        }
    }
    if !total.failures.is_empty() {
        println!("\n== failed");
        for name in &total.failures {
            match total.reasons.get(name) {
                Some(reason) => println!("{name}: {reason}"),
                None => println!("{name}"),
            }
        }
    }
    println!(
        "\n{} passed, {} failed, {} not run, {} tried again",
        total.passed,
        total.failures.len(),
        total.skips.len(),
        total.retries.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(filter: &str) -> (Vec<&'static str>, Option<&str>) {
        let (steps, tests) = select(Some(filter));
        (steps.iter().map(|step| step.name).collect(), tests)
    }

    #[test]
    fn a_filter_is_a_step_or_part_of_a_test() {
        assert_eq!(names("clippy"), (vec!["clippy"], None));
        assert_eq!(names("overlay"), (vec!["unit", "images", "e2e"], Some("overlay")));
        assert_eq!(select(None).0.len(), STEPS.len());
    }
}
