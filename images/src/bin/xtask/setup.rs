//! `cargo xtask setup`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use images::layout::Layout;
use images::packages;
use images::process::Program;
use images::progress::Step;
use images::setup::{Setup, repository};

/// Fetches and builds everything perfvisor boots into the cache; what is there and current is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Ask Debian's archive for newer versions. Without it a set-up keeps what it has and needs no network.
    #[arg(long)]
    pub(crate) refresh: bool,
}

/// Brings the cache up to date.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let layout = Layout::open()?;
    packages::setup(&layout)?;
    build_programs(&layout)?;
    let setup = Setup { repository: repository(), binaries: binaries()?, refresh: arguments.refresh, layout };
    setup.run()?;
    eprintln!("set up in {}", setup.layout.root().display());
    Ok(())
}

/// The programs inside the images, and the command itself.
fn build_programs(layout: &Layout) -> Result<()> {
    let step = Step::begin("build init, perfex and perfvisor");
    let cargo = Program::new(cargo()).args(["build", "--release", "--color=never"]);
    let cargo = cargo.args(["--package=init", "--package=perfex"]).folder(&repository());
    cargo.log(layout.log("cargo")).watch(|line| step.at(line.trim()))?;
    step.done("");
    Ok(())
}

/// The cargo that runs us.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Where cargo leaves release binaries: where this one is.
pub(crate) fn binaries() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(this.parent().context("this program has no folder")?.to_owned())
}
