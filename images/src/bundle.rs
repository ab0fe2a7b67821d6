//! Programs from packages that can be copied into any machine: the libraries that one needs are beside it, and it says
//! itself where.
//!
//! ```text
//! NAME/bin/PROGRAM        looks for libraries in $ORIGIN/../lib/NAME
//! NAME/lib/NAME/*.so.*    all but the C library's, which the host has
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::overlay::libraries;
use crate::process::Program;

/// Where packages have libraries.
const FOLDERS: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// The loader insists on a C library of its own build, so both are the host's.
const OF_THE_HOST: [&str; 3] = ["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6"];

/// Copies the libraries that `program` needs, and theirs, out of unpacked packages into one folder, less those in `absent`;
/// returns them.
pub(crate) fn collect(program: &Path, packages: &Path, to: &Path, absent: &[&str]) -> Result<Vec<PathBuf>> {
    let mut known: BTreeSet<String> = OF_THE_HOST.iter().chain(absent).map(|&name| name.to_owned()).collect();
    let mut copies = Vec::new();
    let mut pending = vec![program.to_owned()];
    while let Some(file) = pending.pop() {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let needed = libraries::needed_by(&content).map(|needed| needed.libraries).unwrap_or_default();
        for name in needed {
            if !known.insert(name.clone()) {
                continue;
            }
            let mut places = FOLDERS.iter().map(|folder| packages.join(folder).join(&name));
            let found = places.find(|path| path.is_file());
            let found = found.with_context(|| {
                format!("{} needs {name}, which is in none of the packages", file.display())
            })?;
            let copy = to.join(&name);
            fs::copy(&found, &copy).with_context(|| format!("cannot copy {}", found.display()))?;
            pending.push(copy.clone());
            copies.push(copy);
        }
    }
    Ok(copies)
}

/// Has `program` look for its libraries in `place`, by `patchelf` from the packages, which is run with the libraries
/// in `own`.
pub(crate) fn point(program: &Path, place: &str, packages: &Path, own: &Path) -> Result<()> {
    // As DT_RPATH and not as DT_RUNPATH: that holds for what the libraries need, too.
    let patchelf = Program::new(packages.join("usr/bin/patchelf")).env("LD_LIBRARY_PATH", own);
    patchelf.args(["--force-rpath", "--set-rpath", place]).arg(program).run()
}
