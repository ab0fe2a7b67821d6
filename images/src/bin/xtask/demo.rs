//! `cargo xtask demo`: one count, seen from the guest and from the host, beside what it must be.

use anyhow::{Context, Result, bail};
use images::layout::Layout;
use images::process::Program;

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
    let layout = Layout::open()?;
    layout
        .kernel(Layout::default_series())
        .with_context(|| format!("no guest kernel; {}", layout.remedy()))?;
    let perfvisor = cargo::binaries()?.join("perfvisor");
    let mut version = Program::new(&perfvisor).arg("--version");
    if arguments.lab {
        version = version.arg("--lab");
    }
    version.run()?;
    bail!("the demo isn't written yet")
}
