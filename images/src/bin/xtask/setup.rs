//! `cargo xtask setup`.

use anyhow::Result;
use images::layout::Layout;
use images::packages;
use images::setup::{Setup, repository};

use crate::cargo;

/// Fetch guest kernels, and build modules, images and the lab machine, unless they are there and current
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Ask Debian's archive for newer versions. Otherwise keep the versions in the cache, and use the network only for
    /// what was never fetched.
    #[arg(long)]
    pub(crate) refresh: bool,
}

/// Brings the cache up to date.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let layout = Layout::open()?;
    packages::setup(&layout)?;
    cargo::build(&layout)?;
    images(layout, arguments.refresh)
}

/// The part of a set-up after the packages and cargo.
pub(crate) fn images(layout: Layout, refresh: bool) -> Result<()> {
    let setup = Setup { repository: repository(), binaries: cargo::binaries()?, refresh, layout };
    setup.run()?;
    eprintln!("The images are in {}", setup.layout.root().display());
    Ok(())
}
