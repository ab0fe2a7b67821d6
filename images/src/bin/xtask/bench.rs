//! `cargo xtask bench`: what counters cost, in instructions executed and exits.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, setup};

/// Measure what operations on counters cost guest and host, in the lab machine: instructions executed, and exits
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Operations to measure, by the beginning of their names; all without
    operations: Vec<String>,
    /// The PMU of the guest
    #[arg(long, default_value = "amd-core")]
    pmu: String,
    /// The guest's kernel: 6.1 or 6.12
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// Write the figures to a file as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure on this host: it needs counters and a KVM that boots Linux
    #[arg(long)]
    here: bool,
}

/// Measures and prints; false when it failed, which it has said.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    setup::run(&setup::Arguments { refresh: false })?;
    let bench = cargo::binaries()?.join("bench");
    println!();
    let mut command = Command::new(&bench);
    command.args(["--pmu", &arguments.pmu, "--kernel", &arguments.kernel]);
    if let Some(path) = &arguments.json {
        command.arg("--json").arg(path);
    }
    command.args((!arguments.here).then_some("--lab")).args(&arguments.operations);
    let status = command.status().with_context(|| format!("cannot run {}", bench.display()))?;
    Ok(status.success())
}
