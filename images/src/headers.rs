//! A kernel's headers, unpacked so that modules can be built against them without installing anything.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::archive::{Archive, Pin};
use crate::artefact::{self, Inputs, Key};
use crate::layout::Layout;
use crate::progress::Step;
use crate::series::Series;

/// Makes sure the headers of a series are in the cache ([`Layout::kdir`]) and returns their key.
pub fn setup(series: &Series, layout: &Layout, archive: &Archive) -> Result<Key> {
    let pins = archive.pinned(&format!("headers-{}", series.name), |archive| resolve(archive, series))?;
    let folder = layout.headers_folder(series);
    // The place is an input: the tree holds absolute paths.
    let key = Inputs::of("headers", 1).text(&folder.to_string_lossy());
    let key = pins.iter().fold(key, |inputs, pin| inputs.text(&pin.sha256)).finish();
    artefact::ensure(&folder, &key, |scratch| {
        archive.fetch(&pins)?;
        let step = Step::begin(format!("headers {}", series.name));
        archive.unpack(&pins, scratch)?;
        let name = relocate(scratch, &folder)?;
        std::os::unix::fs::symlink(Path::new("usr/src").join(&name), scratch.join("kdir"))?;
        step.done(&name);
        Ok(())
    })?;
    Ok(key)
}

/// The headers proper, the part that all flavours share, and the tools of the kernel's build.
fn resolve(archive: &Archive, series: &Series) -> Result<Vec<Pin>> {
    let proper = archive.dependencies(series.headers_meta)?.into_iter().next();
    let proper = proper.with_context(|| format!("{} depends on nothing", series.headers_meta))?;
    let mut packages = archive.dependencies(&proper)?;
    packages.retain(|name| {
        name.starts_with("linux-kbuild-") || (name.starts_with("linux-headers-") && name.contains("-common"))
    });
    packages.push(proper);
    packages.iter().map(|package| archive.binary(package)).collect()
}

/// Debian's Makefile includes another by its installed path; all else in the packages is relative. Returns the
/// name of the folder with that Makefile.
fn relocate(unpacked: &Path, place: &Path) -> Result<String> {
    let sources = unpacked.join("usr/src");
    for entry in fs::read_dir(&sources).with_context(|| format!("cannot list {}", sources.display()))? {
        let entry = entry?;
        let makefile = entry.path().join("Makefile");
        let Ok(text) = fs::read_to_string(&makefile) else { continue };
        if let Some(target) = text.strip_prefix("include /usr/src/") {
            let text = format!("include {}/usr/src/{target}", place.display());
            fs::write(&makefile, text).with_context(|| format!("cannot write {}", makefile.display()))?;
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    anyhow::bail!("the header packages have no Makefile that includes /usr/src/...; their form has changed")
}
