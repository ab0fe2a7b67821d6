//! `cargo xtask clean`.

use anyhow::Result;
use images::layout::Layout;

/// Remove what setup made, so that the next one starts from nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Keep the files downloaded from Debian's archive.
    #[arg(long)]
    keep_downloads: bool,
}

/// Empties the cache.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let layout = Layout::open()?;
    layout.clean(arguments.keep_downloads)?;
    eprintln!("Removed the images in {}", layout.root().display());
    Ok(())
}
