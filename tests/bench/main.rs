//! What counters cost: instructions executed and exits, by operation, of perfvisor and of what it is compared with, in one run.
//!
//! It measures whatever runs a guest from outside, by the host's own counters: `costs` in the guest does each
//! operation in two lengths, and stands still while they are read (`tests::mark`). One operation costs the difference,
//! divided by the difference of the lengths. What comes in between (the timers of guest and host, other programs) is in one
//! of the two or in the other; of three such pairs the median is taken.
//!
//! perfvisor is $PERFVISOR, or the one beside this program.
//!
//! `bench measure` and `bench start` are the parts that run on the machine that is measured: this program sends itself there.

mod accuracy;
mod aims;
mod arguments;
mod compare;
mod cost;
mod counters;
mod grid;
mod idle;
mod images;
mod interrupts;
mod jobs;
mod machines;
mod measure;
mod page;
mod piped;
mod place;
mod prepared;
mod qemu;
mod results;
mod runs;
mod scale;
mod setting;
mod sizes;
mod start;
mod summary;
mod system;
mod table;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use arguments::{Arguments, CommandLine, Part};
use clap::Parser;
use measure::Beside;
use place::Place;
use results::Results;

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let outcome = match &line.part {
        Some(Part::Measure { side, by, interrupted, beside, command }) => {
            let beside = Beside { interrupted: *interrupted, machines: beside.clone() };
            measure::run(*side, *by, &beside, command)
        }
        Some(Part::Idle { numbers, dump, command }) => scale::run(numbers, dump.as_deref(), command),
        Some(Part::Start { until, terminal, command }) => start::run(until.as_deref(), *terminal, command),
        None => bench(&line.all),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> Result<()> {
    let places = Place::several(arguments.lab, if arguments.again { 1 } else { arguments.jobs() })?;
    let results = earlier(arguments)?;
    let names = runs::names(&places[0])?;
    let (mut results, failed) = if arguments.again {
        (results, Vec::new())
    } else {
        jobs::measured(&places, arguments, &names, results, |results| save(arguments, results))?
    };
    results.sort(&names);
    if arguments.remark.is_some() {
        results.remark.clone_from(&arguments.remark);
    }
    results.systems.iter().for_each(|measured| println!("{}", table::text(measured)));
    print!("{}{}", compare::text(&results), aims::text(&results));
    save(arguments, &results)?;
    if let Some(path) = &arguments.page {
        write(path, &page::html(&results))?;
    }
    if let Some(path) = &arguments.markdown {
        write(path, &summary::text(&results))?;
    }
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    let nothing =
        results.systems.iter().all(|measured| measured.operations.is_empty() && measured.counts.is_empty());
    ensure!(!nothing || !results.starts.is_empty(), "nothing was measured");
    Ok(())
}

/// What `--from` has; the machine must be the same.
fn earlier(arguments: &Arguments) -> Result<Results> {
    let mut results = Results {
        unit: "per operation: instructions executed in user and in kernel mode; exits".to_owned(),
        pmu: arguments.pmu.clone(),
        kernel: arguments.kernel.clone(),
        ..Results::default()
    };
    let own = arguments.json.iter().filter(|path| arguments.resume && path.exists());
    for path in arguments.from.iter().chain(own) {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let earlier: Results = serde_json::from_str(&text)
            .with_context(|| format!("{} is not what --json wrote", path.display()))?;
        ensure!(
            results.pmu == earlier.pmu && results.kernel == earlier.kernel,
            "{} is of a guest with kernel {} and PMU {}; say so by --kernel and --pmu",
            path.display(),
            earlier.kernel,
            earlier.pmu
        );
        earlier.systems.into_iter().for_each(|measured| results.put(measured));
        results.put_starts(earlier.starts);
        results.put_scale(earlier.scale);
        results.done.extend(earlier.done);
        results.remark = earlier.remark.or(results.remark);
    }
    Ok(results)
}

fn save(arguments: &Arguments, results: &Results) -> Result<()> {
    match &arguments.json {
        Some(path) => write(path, &(serde_json::to_string_pretty(results)? + "\n")),
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
