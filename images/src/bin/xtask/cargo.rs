//! The cargo that runs us, and where it leaves what it builds.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use images::layout::Layout;
use images::process::Program;
use images::progress::Step;
use images::setup::repository;

/// Cargo with a subcommand, in this repository.
pub(crate) fn cargo(subcommand: &str) -> Program {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    Program::new(cargo).arg(subcommand).folder(&repository())
}

/// Builds the command `perfvisor` and the programs inside the images.
pub(crate) fn build(layout: &Layout) -> Result<()> {
    let step = Step::begin("build perfvisor, init and perfex");
    let build = cargo("build").args(["--release", "--color=never"]);
    let build = build.args(["--package=perfvisor", "--package=init", "--package=perfex", "--package=tests"]);
    build.log(layout.log("cargo-build")).watch(|line| step.at(line.trim()))?;
    step.done("");
    Ok(())
}

/// Where release binaries are: where this one is.
pub(crate) fn binaries() -> Result<PathBuf> {
    let this = env::current_exe().context("cannot find the path of this program")?;
    Ok(this.parent().context("this program has no folder")?.to_owned())
}
