//! The whole set-up: from nothing to images that boot.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::archive::Archive;
use crate::artefact::Key;
use crate::initramfs::{self, Programs, Recipe};
use crate::layout::Layout;
use crate::series::{self, Series};
use crate::{headers, kernels, lab, modules};

/// What a set-up works from.
pub struct Setup {
    /// The cache to fill.
    pub layout: Layout,
    /// This repository.
    pub repository: PathBuf,
    /// Where cargo left init and perfex.
    pub binaries: PathBuf,
    /// Whether to ask the archive for newer versions.
    pub refresh: bool,
}

impl Setup {
    /// Brings everything in the cache up to date.
    pub fn run(&self) -> Result<()> {
        let _lock = self.layout.lock()?;
        let archive = Archive::open(&self.layout, self.refresh);
        let guests = self.guests(&archive)?;
        let patch = lab::patch(&self.repository);
        // TEMPORARY until the patch is here
        if !patch.exists() {
            eprintln!("NO LAB: {} is missing", patch.display());
            return Ok(());
        }
        lab::setup(&self.layout, &archive, &patch)?;
        let programs = Programs::in_folder(&self.binaries);
        let busybox = initramfs::setup_busybox(&self.layout, &archive)?;
        let recipe = Recipe { layout: &self.layout, programs: &programs, busybox: &busybox };
        recipe.setup_lab(&kernels::setup(&series::DEFAULT, &self.layout, &archive)?, &guests)
    }

    fn guests(&self, archive: &Archive) -> Result<Vec<(Series, Key)>> {
        let programs = Programs::in_folder(&self.binaries);
        let busybox = initramfs::setup_busybox(&self.layout, archive)?;
        let recipe = Recipe { layout: &self.layout, programs: &programs, busybox: &busybox };
        let guest = |series: Series| {
            let kernel = kernels::setup(&series, &self.layout, archive)?;
            let headers = headers::setup(&series, &self.layout, archive)?;
            let source = modules::guest_driver(&self.repository);
            // TEMPORARY until the module is here
            let driver = if source.folder.join("Kbuild").exists() {
                source.setup(&series, &self.layout, &headers).map_err(|error| eprintln!("NO DRIVER: {error:#}")).ok()
            } else {
                None
            };
            Ok((series, recipe.setup_guest(&series, &kernel, driver.as_ref())?))
        };
        series::ALL.into_iter().map(guest).collect()
    }
}

/// The root of this repository, from the folder of this crate.
pub fn repository() -> PathBuf {
    let this = Path::new(env!("CARGO_MANIFEST_DIR"));
    this.parent().unwrap_or(this).to_owned()
}
