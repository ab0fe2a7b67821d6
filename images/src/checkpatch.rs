//! The kernel's own style checker, for this repository's kernel modules.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::archive::Archive;
use crate::artefact::{self, Inputs};
use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;

/// The checker and its word lists, of the whole kernel source.
const SCRIPTS: [&str; 3] = ["checkpatch.pl", "spelling.txt", "const_structs.checkpatch"];

/// What doesn't hold for these modules: each is one source for several kernels, and implements system calls.
const IGNORED: &str = "LINUX_VERSION_CODE,CONSTANT_COMPARISON,ENOSYS";

/// Makes sure the checker is in the cache, and returns its path.
pub fn setup(layout: &Layout) -> Result<PathBuf> {
    let _lock = layout.lock()?;
    let archive = Archive::open(layout, false);
    let folder = layout.checkpatch_folder();
    let pins = archive.pinned("checkpatch", |archive| Ok(vec![archive.binary("linux-source-6.1")?]))?;
    let key = pins.iter().fold(Inputs::of("checkpatch", 1), |inputs, pin| inputs.text(&pin.sha256)).finish();
    artefact::ensure(&folder, &key, |scratch| {
        let package = scratch.join("package");
        fs::create_dir_all(&package).with_context(|| format!("cannot create {}", package.display()))?;
        archive.fetch(&pins)?;
        let step = Step::begin("checkpatch from the kernel source");
        archive.unpack(&pins, &package)?;
        let scripts = SCRIPTS.map(|name| format!("linux-source-6.1/scripts/{name}"));
        let source = package.join("usr/src/linux-source-6.1.tar.xz");
        let tar = Program::new("tar").arg("--extract").arg("--strip-components=2").arg("--file").arg(source);
        tar.args(scripts).folder(scratch).run()?;
        artefact::remove(&package)?;
        for pin in &pins {
            archive.discard(pin)?;
        }
        step.done("");
        Ok(())
    })?;
    Ok(folder.join(SCRIPTS[0]))
}

/// Checks files, named relative to a folder; each line that complains is given to `complaint`. Says whether there
/// were none.
pub fn check(
    script: &Path,
    folder: &Path,
    files: &[PathBuf],
    mut complaint: impl FnMut(&str),
) -> Result<bool> {
    let checkpatch = Program::new("perl").arg(script).folder(folder).arg(format!("--ignore={IGNORED}"));
    let checkpatch = checkpatch.args(["--no-tree", "--strict", "--no-summary", "--terse", "--file"]);
    let (clean, _) = checkpatch.args(files).stream(|line| {
        if !line.is_empty() {
            complaint(line);
        }
    })?;
    Ok(clean)
}
