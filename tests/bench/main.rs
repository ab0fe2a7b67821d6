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

mod aims;
mod arguments;
mod compare;
mod counters;
mod images;
mod markdown;
mod measure;
mod page;
mod place;
mod results;
mod start;
mod system;
mod table;

use std::io::BufReader;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use arguments::{Arguments, CommandLine, Part};
use clap::Parser;
use counters::Instrument;
use measure::Side;
use place::Place;
use results::{Measured, Results};
use system::System;

/// Times a guest is started that does not come to its end: the lab loses one now and then.
const ATTEMPTS: usize = 3;

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let outcome = match &line.part {
        Some(Part::Measure { side, by, command }) => measure::run(*side, *by, command),
        Some(Part::Start { until, command }) => start::run(until.as_deref(), command),
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
    let place = Place::new(arguments.lab)?;
    let mut results = earlier(arguments)?;
    let mut failed = Vec::new();
    for &system in arguments.systems.iter().filter(|_| !arguments.again) {
        let measured = operations(system, &place, arguments);
        match measured {
            Ok(measured) => {
                println!("{}", table::text(&measured));
                results.put(measured);
                save(arguments, &results)?;
            }
            Err(error) => {
                eprintln!("bench: {}: {error:#}", system.title());
                failed.push(system.title());
            }
        }
    }
    if arguments.start {
        eprintln!("measuring starts");
        results.put_starts(start::measured(&place, arguments)?);
    }
    print!("{}{}", compare::text(&results), aims::text(&results));
    save(arguments, &results)?;
    if let Some(path) = &arguments.page {
        write(path, &page::html(&results))?;
    }
    if let Some(path) = &arguments.markdown {
        write(path, &markdown::text(&results))?;
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
    for path in &arguments.from {
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
    }
    Ok(results)
}

/// After every system: what is measured is not lost with what fails later.
fn save(arguments: &Arguments, results: &Results) -> Result<()> {
    match &arguments.json {
        Some(path) => write(path, &(serde_json::to_string_pretty(results)? + "\n")),
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// All operations of one system.
fn operations(system: System, place: &Place, arguments: &Arguments) -> Result<Measured> {
    let mut measured = Measured::new(system);
    // Host and guest one after the other: together they need more counters than a processor has, with the guest's own.
    for side in [Side::Host, Side::Guest] {
        eprintln!("{}: measuring what is executed by the {}", system.title(), side.name());
        let names = &arguments.operations;
        repeated(system, side, system.instrument(), place, arguments, names)?
            .into_iter()
            .for_each(|line| measured.add(side, line));
    }
    for side in [Side::Host, Side::Guest] {
        let names = measured.uncounted(side);
        if names.is_empty() || system.instrument() != Instrument::Perf {
            continue;
        }
        eprintln!("{}: again with one counter, for the {}", system.title(), side.name());
        for line in repeated(system, side, Instrument::Total, place, arguments, &names)? {
            // Of those whose names begin with one of these there are others.
            if matches!(&line, measure::Line::Cost { name, .. } if names.contains(name)) {
                measured.add(side, line);
            }
        }
    }
    Ok(measured)
}

/// A run that may be lost.
fn repeated(
    system: System,
    side: Side,
    instrument: Instrument,
    place: &Place,
    arguments: &Arguments,
    names: &[String],
) -> Result<Vec<measure::Line>> {
    let mut attempt = 1;
    loop {
        match lines(system, side, instrument, place, arguments, names) {
            Err(error) if attempt < ATTEMPTS => eprintln!("bench: {error:#}; once more"),
            outcome => return outcome,
        }
        place.forget();
        attempt += 1;
    }
}

/// Run the guest, on a host with counters, under `bench measure`.
fn lines(
    system: System,
    side: Side,
    instrument: Instrument,
    place: &Place,
    arguments: &Arguments,
    names: &[String],
) -> Result<Vec<measure::Line>> {
    let prepared = system::costs(system, place, arguments, names)?;
    let mut command = place.bench(&prepared.files);
    command.args(["measure", side.name(), "--by", &instrument.name(), "--"]).args(&prepared.command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let output = child.stdout.take().context("no pipe")?;
    let lines = measure::lines(BufReader::new(output));
    let status = child.wait()?;
    let lines = lines?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(lines)
}
