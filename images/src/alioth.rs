//! Alioth, a VMM in Rust that crates.io has, built from there: what perfvisor is compared with beside QEMU.

use std::path::PathBuf;

use anyhow::Result;

use crate::artefact::{self, Inputs};
use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;

/// Of the crate `alioth-cli`.
pub const VERSION: &str = "0.12.0";

/// Static, so that it runs in the lab machine.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const STATIC: &str = "target.x86_64-unknown-linux-gnu.rustflags=['-C','target-feature=+crt-static']";

/// Makes sure Alioth is in the cache ([`Layout::alioth`]), and returns the program.
pub fn setup(layout: &Layout) -> Result<PathBuf> {
    let _lock = layout.lock()?;
    let key =
        [VERSION, TARGET, STATIC].iter().fold(Inputs::of("alioth", 1), |inputs, text| inputs.text(text));
    let place = layout.alioth_folder();
    artefact::ensure(&place, &key.finish(), |folder| {
        let step = Step::begin("Alioth: build");
        let install = Program::new("cargo").args(["install", "alioth-cli", "--locked", "--target", TARGET]);
        let install = install.arg("--version").arg(format!("={VERSION}")).args(["--config", STATIC]);
        let install = install.arg("--root").arg(folder).arg("--target-dir").arg(folder.join("build"));
        install.log(layout.log("alioth")).watch(|line| step.at(line))?;
        artefact::remove(&folder.join("build"))?;
        step.done(VERSION);
        Ok(())
    })?;
    Ok(place.join("bin/alioth"))
}
