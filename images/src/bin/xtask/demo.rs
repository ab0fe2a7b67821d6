//! `cargo xtask demo`: one count, seen from the guest and from the host, beside what it must be.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, setup};

/// Boot a guest, count a program of known length in it, and compare what guest and host saw
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run in the lab machine even where this host could do it.
    #[arg(long)]
    lab: bool,
}

/// Shows the demo; false when the counts disagree.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    setup::run(&setup::Arguments { refresh: false })?;
    let demo = cargo::binaries()?.join("demo");
    println!();
    let status = Command::new(&demo)
        .args(arguments.lab.then_some("--lab"))
        .status()
        .with_context(|| format!("cannot run {}", demo.display()))?;
    Ok(status.success())
}
