//! Programs of perfctr's time: perfctr 2.6's own examples on its library, of 64 and of 32 bits, and PAPI with its perfctr
//! component. They are what the older interface is for, and know nothing of this project. Debian's source of PAPI has
//! both.

use std::fs;

use anyhow::{Context, Result};

use crate::archive::Archive;
use crate::artefact::{self, Inputs};
use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;

/// How they are built, and what of their sources no longer fits today's compilers, libraries and kernels.
const BUILD: &str = include_str!("older/build.sh");

/// What gcc needs for static programs of 32 bits: the C library, and its own. Not installed, but unpacked.
const THIRTY_TWO_BITS: [&str; 2] = ["libc6-dev-i386", "lib32gcc-12-dev"];

/// Makes sure that the programs are in the cache.
pub fn setup(layout: &Layout) -> Result<()> {
    let _lock = layout.lock()?;
    let archive = Archive::open(layout, false);
    let source = archive.pinned("papi", |archive| Ok(vec![archive.source("papi", ".orig.tar.gz")?]))?;
    let packages = archive.pinned("libc-i386", |archive| {
        THIRTY_TWO_BITS.iter().map(|package| archive.binary(package)).collect()
    })?;
    let inputs = Inputs::of("older programs", 2).text(BUILD);
    let key = source.iter().chain(&packages).fold(inputs, |inputs, pin| inputs.text(&pin.sha256)).finish();
    artefact::ensure(&layout.older_programs_folder(), &key, |folder| {
        let archives = archive.fetch(&source)?;
        let i386 = folder.join("i386");
        fs::create_dir_all(&i386).with_context(|| format!("cannot create {}", i386.display()))?;
        archive.unpack(&packages, &i386)?;
        let step = Step::begin("perfctr 2.6's examples and PAPI");
        let work = folder.join("source");
        fs::create_dir_all(&work).with_context(|| format!("cannot create {}", work.display()))?;
        for archive in archives {
            let unpack = Program::new("tar").arg("--extract").arg("--strip-components=1").arg("--file");
            unpack.arg(archive).folder(&work).run()?;
        }
        let programs = folder.join("bin");
        fs::create_dir(&programs).with_context(|| format!("cannot create {}", programs.display()))?;
        let build = Program::new("sh").args(["-c", BUILD, "build.sh"]).arg(&programs).arg(&i386);
        let build = build.folder(&work.join("src"));
        // Cargo's own make flags would reach the makefiles.
        build.without_env("MAKEFLAGS").log(layout.log("older-programs")).run()?;
        step.done("");
        artefact::remove(&i386)?;
        artefact::remove(&work)
    })?;
    Ok(())
}
