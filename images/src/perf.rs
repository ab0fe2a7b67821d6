//! Linux's `perf`, from its package, as a program that can be copied into any machine: the libraries it needs are
//! beside it, and it says itself where.
//!
//! ```text
//! perf/bin/perf           looks for libraries in $ORIGIN/../lib/perf
//! perf/lib/perf/*.so.*    all but the C library's, which the host has
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::archive::Archive;
use crate::artefact::{self, Inputs};
use crate::layout::Layout;
use crate::overlay::libraries;
use crate::process::Program;
use crate::progress::Step;

/// The tool, and every package with a library that it or one of its libraries needs. What the packages say they depend
/// on is much more: a Perl and a Python with all their modules, for scripts that nobody runs in these machines.
const PACKAGES: [&str; 23] = [
    "linux-perf",
    "libbabeltrace1",
    "libbz2-1.0",
    "libcap2",
    "libcrypt1",
    "libdw1",
    "libelf1",
    "libexpat1",
    "libgcc-s1",
    "libglib2.0-0",
    "liblzma5",
    "libnuma1",
    "libopencsd1",
    "libpcre2-8-0",
    "libperl5.36",
    "libpython3.11",
    "libslang2",
    "libstdc++6",
    "libunwind8",
    "libuuid1",
    "libzstd1",
    "zlib1g",
    // Changes where a program looks for its libraries.
    "patchelf",
];

/// Where the packages have libraries.
const FOLDERS: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// The loader insists on a C library of its own build, so both are the host's.
const OF_THE_HOST: [&str; 3] = ["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6"];

/// Makes sure perf is in the cache ([`Layout::perf`]).
pub fn setup(layout: &Layout, archive: &Archive) -> Result<()> {
    let pins =
        archive.pinned("perf", |archive| PACKAGES.iter().map(|package| archive.binary(package)).collect())?;
    let key = pins.iter().fold(Inputs::of("perf", 1), |inputs, pin| inputs.text(&pin.sha256)).finish();
    artefact::ensure(&layout.perf_folder(), &key, |folder| {
        archive.fetch(&pins)?;
        let step = Step::begin("perf");
        let packages = folder.join("packages");
        fs::create_dir_all(&packages).with_context(|| format!("cannot create {}", packages.display()))?;
        archive.unpack(&pins, &packages)?;
        let (program, place) = (folder.join("bin/perf"), folder.join("lib/perf"));
        for folder in [folder.join("bin"), place.clone()] {
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        artefact::rename(&packages.join("usr/bin/perf"), &program)?;
        let libraries = collect(&program, &packages, &place)?;
        // As DT_RPATH and not as DT_RUNPATH: that holds for what the libraries need, too.
        let patchelf = Program::new(packages.join("usr/bin/patchelf")).env("LD_LIBRARY_PATH", &place);
        patchelf.args(["--force-rpath", "--set-rpath", "$ORIGIN/../lib/perf"]).arg(&program).run()?;
        artefact::remove(&packages)?;
        step.done(&format!("{libraries} libraries"));
        Ok(())
    })?;
    Ok(())
}

/// Copies the libraries that `program` needs, and theirs, out of the packages into one folder; returns their number.
fn collect(program: &Path, packages: &Path, to: &Path) -> Result<usize> {
    let mut known: BTreeSet<String> = OF_THE_HOST.map(str::to_owned).into();
    let mut pending = vec![program.to_owned()];
    while let Some(file) = pending.pop() {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let needed = libraries::needed_by(&content).map(|needed| needed.libraries).unwrap_or_default();
        for name in needed {
            if !known.insert(name.clone()) {
                continue;
            }
            let place = FOLDERS.iter().map(|folder| packages.join(folder).join(&name));
            let found = place.clone().find(|path| path.is_file());
            let found = found.with_context(|| {
                format!("{} needs {name}, which is in none of perf's packages", file.display())
            })?;
            let copy = to.join(&name);
            fs::copy(&found, &copy).with_context(|| format!("cannot copy {}", found.display()))?;
            pending.push(copy);
        }
    }
    let libraries = known.len() - OF_THE_HOST.len();
    ensure!(libraries > 0, "perf needs no libraries; its package has changed");
    Ok(libraries)
}
