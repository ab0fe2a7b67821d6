//! The whole set-up: from nothing to images that boot.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::archive::Archive;
use crate::artefact::Key;
use crate::initramfs::{self, Programs, Recipe};
use crate::layout::Layout;
use crate::series::{self, Series};
use crate::{headers, kernels, lab, modules, perf};

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
        let programs = Programs::in_folder(&self.binaries);
        let busybox = initramfs::setup_busybox(&self.layout, &archive)?;
        let recipe = Recipe { layout: &self.layout, programs: &programs, busybox: &busybox };
        let mut guests = Vec::new();
        for series in series::ALL {
            guests.push((series, self.guest(series, &archive, &recipe)?));
        }
        perf::setup(&self.layout, &archive)?;
        lab::setup(&self.layout, &archive, &lab::patch(&self.repository))?;
        let headers = headers::setup(&series::DEFAULT, &self.layout, &archive)?;
        let module =
            modules::host_module(&self.repository).setup(&series::DEFAULT, &self.layout, &headers)?;
        recipe.setup_lab(&guests, &module)
    }

    /// All of one guest kernel; returns the key of its initramfs, which depends on everything else.
    fn guest(&self, series: Series, archive: &Archive, recipe: &Recipe<'_>) -> Result<Key> {
        let kernel = kernels::setup(&series, &self.layout, archive)?;
        let headers = headers::setup(&series, &self.layout, archive)?;
        let driver = modules::guest_driver(&self.repository).setup(&series, &self.layout, &headers)?;
        recipe.setup_guest(&series, &kernel, &driver)
    }
}

/// The root of this repository, from the folder of this crate.
pub fn repository() -> PathBuf {
    let this = Path::new(env!("CARGO_MANIFEST_DIR"));
    this.parent().unwrap_or(this).to_owned()
}
