//! The benchmark measures what is known, and the cost that perfvisor is made for: one exit a switch.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use images::process::Guarded;
use serde_json::Value;

use crate::perfvisor::{BOOT_LIMIT, program};
use crate::{lab_folder, summary};

pub(super) fn costs() -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command
        .env("PERFVISOR", program()?)
        .args(["--lab", "--systems", "perf", "--settings", "alone", "--jobs", "1", "--json"])
        .arg(file.path())
        .args(["spin", "cpuid", "switch/perfctr-4"]);
    lab_folder::choose(&mut command);
    // Its progress is no part of this suite's output.
    let messages = tempfile::NamedTempFile::new()?;
    command.stdout(Stdio::null()).stderr(messages.reopen()?);
    // It boots twice.
    let status = Guarded::spawn(&mut command)?.wait(BOOT_LIMIT * 2)?;
    let said = fs::read_to_string(messages.path())?;
    // It goes on in another guest where one was lost.
    for line in said.lines().filter(|line| line.starts_with("bench: ") && line.contains("; on from ")) {
        summary::retried("benchmark", line);
    }
    ensure!(status == Some(0), "ended with {status:?}:\n{said}");
    let all: Value = serde_json::from_str(&fs::read_to_string(file.path())?)?;
    let cost = |name: &str, side: &str, what: &str| -> Result<f64> {
        let operations = all["systems"][0]["operations"].as_array().context("no operations")?;
        let operation = operations.iter().find(|operation| operation["name"] == name);
        let value = operation.map(|operation| &operation[side][what]);
        value.and_then(Value::as_f64).with_context(|| format!("no {what} of {name} by the {side} in {all}"))
    };
    // The guest's agent may wake up meanwhile.
    let round = cost("spin", "guest", "user")?;
    ensure!((round - 4.0).abs() < 0.01, "a round of the loop has four instructions: {all}");
    // Timers of guest and host make a few more, or fewer where the shorter length had them.
    for (name, what) in [("cpuid", "exits"), ("switch/perfctr-4", "user_exits")] {
        let exits = cost(name, "host", what)?;
        ensure!((0.99..1.5).contains(&exits), "{name} is one exit: {all}");
    }
    Ok(())
}
