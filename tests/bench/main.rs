//! What counters cost: instructions executed and exits, by operation, in one run.
//!
//! It measures whatever `perfvisor run` starts from outside, by the host's own counters: `costs` in the guest does each
//! operation in two lengths, and stands still while they are read (`tests::mark`). One operation costs the difference,
//! divided by the difference of the lengths. What comes in between (the timers of guest and host, other programs) is in one
//! of the two or in the other; of three such pairs the median is taken.
//!
//! perfvisor is $PERFVISOR, or the one beside this program.
//!
//! `bench measure WHAT -- CMD..` is the part that runs on the machine that is measured: this program sends itself there.

mod arguments;
mod measure;
mod table;

use std::env;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use arguments::{Arguments, CommandLine, Part};
use clap::Parser;
use measure::{Line, Side};
use table::Table;

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let outcome = match &line.part {
        Some(Part::Measure { side, command }) => measure::run(*side, command),
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
    let folder = env::current_exe()?.parent().context("this program is in a folder")?.to_owned();
    let mut table = Table::default();
    // Host and guest one after the other: together they need more counters than a processor has, with the guest's own.
    for side in [Side::Host, Side::Guest] {
        eprintln!("measuring what is executed by the {}", side.name());
        for line in measured(arguments, &folder, side)? {
            table.add(side, line);
        }
    }
    print!("{}", table.to_text());
    if let Some(path) = &arguments.json {
        std::fs::write(path, table.to_json(arguments)?).with_context(|| path.display().to_string())?;
    }
    ensure!(!table.is_empty(), "nothing was measured");
    Ok(())
}

/// Run the guest, on a host with counters, under `bench measure`.
fn measured(arguments: &Arguments, folder: &std::path::Path, side: Side) -> Result<Vec<Line>> {
    let program = |name: &str| match env::var_os("PERFVISOR") {
        Some(path) if name == "perfvisor" => PathBuf::from(path),
        _ => folder.join(name),
    };
    let mut command = Command::new(program("perfvisor"));
    let inside = |name: &str| format!("/bench/{name}");
    if arguments.lab {
        command.args(["lab", "exec"]);
        for name in ["bench", "perfvisor", "costs"] {
            command.arg("--copy").arg(format!("{}:{}", program(name).display(), inside(name)));
        }
        command.args(["--", &inside("bench")]);
    } else {
        command = Command::new(program("bench"));
    }
    let here = |name: &str| if arguments.lab { inside(name) } else { program(name).display().to_string() };
    command.args(["measure", side.name(), "--"]).arg(here("perfvisor"));
    // The module would take all the counters for itself.
    command.args(["run", "--source", "perf", "--pmu", &arguments.pmu, "--kernel", &arguments.kernel]);
    command.args(["--copy", &format!("{}:/bin/costs", here("costs")), "--", "costs"]);
    command.args(&arguments.operations);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("{command:?}"))?;
    let output = child.stdout.take().context("no pipe")?;
    let lines = measure::lines(BufReader::new(output));
    let status = child.wait()?;
    let lines = lines?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(lines)
}
