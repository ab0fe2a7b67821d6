//! Debian's dkms, which builds this repository's kernel modules as their users have it built: from what `make dkms` gives
//! it. Nothing is installed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::archive::Archive;
use crate::artefact::{self, Inputs, Key};
use crate::layout::Layout;
use crate::modules::ModuleSource;
use crate::process::Program;
use crate::progress::Step;
use crate::series::Series;

/// dkms, unpacked.
pub struct Dkms {
    folder: PathBuf,
    key: Key,
}

/// Makes sure that dkms is in the cache.
pub fn setup(layout: &Layout, archive: &Archive) -> Result<Dkms> {
    let folder = layout.dkms_folder();
    let pins = archive
        .pinned("dkms", |archive| ["dkms", "kmod"].iter().map(|package| archive.binary(package)).collect())?;
    let key = pins.iter().fold(Inputs::of("dkms", 1), |inputs, pin| inputs.text(&pin.sha256)).finish();
    artefact::ensure(&folder, &key, |scratch| archive.unpack(&pins, scratch))?;
    Ok(Dkms { folder, key })
}

impl Dkms {
    /// Makes sure that dkms builds the module for a series.
    pub fn check(
        &self,
        source: &ModuleSource,
        series: &Series,
        layout: &Layout,
        headers: &Key,
    ) -> Result<()> {
        let key = source.inputs("module by dkms", headers)?.key(&self.key);
        let key = key.file(&source.folder.join("dkms.conf"))?.finish();
        let path = layout.driver_folder(series).join(format!("{}.dkms", source.name));
        artefact::ensure(&path, &key, |file| {
            let step = Step::begin(format!("dkms {} for {}", source.name, series.name));
            let work = file.with_extension("build");
            artefact::remove(&work)?;
            let built = self.build(source, series, layout, &work)?;
            artefact::rename(&built, file)?;
            artefact::remove(&work)?;
            step.done("");
            Ok(())
        })?;
        Ok(())
    }

    /// What a user does, with dkms' folders below `work` instead of the machine's. Returns the module.
    fn build(&self, source: &ModuleSource, series: &Series, layout: &Layout, work: &Path) -> Result<PathBuf> {
        let (sources, tree) = (work.join("src"), work.join("tree"));
        let path = self.path(work, &sources, &tree)?;
        let log = layout.log(&format!("dkms-{}-{}", source.name, series.name));
        let make = Program::new("make").arg("-C").arg(&source.folder).arg("dkms");
        let make = make.arg(format!("DKMS_SOURCE={}", sources.display())).env("PATH", &path);
        make.without_env("MAKEFLAGS").log(&log).run()?;

        let (package, version) = added(&sources)?;
        let kdir = layout.kdir(series);
        let release = kdir.join("include/config/kernel.release");
        let release =
            fs::read_to_string(&release).with_context(|| format!("cannot read {}", release.display()))?;
        let kernel = release.trim();
        let dkms = Program::new(work.join("bin/dkms")).args(["build", "-m", &package, "-v", &version]);
        let dkms = dkms.args(["-k", &format!("{kernel}/x86_64"), "--kernelsourcedir"]).arg(&kdir);
        // Its own log is where the compiler's messages are, and is in the folder that stays if this fails.
        let said = layout.log(&format!("dkms-build-{}-{}", source.name, series.name));
        dkms.env("PATH", &path).without_env("MAKEFLAGS").log(&said).run()?;
        let built = tree.join(&package).join(&version).join(kernel).join("x86_64/module");
        let module = built.join(format!("{}.ko", source.name));
        ensure!(module.is_file(), "dkms said nothing, but did not make {}", module.display());
        Ok(module)
    }

    /// The search path with a `dkms` that knows these folders, which the makefile has no reason to name.
    fn path(&self, work: &Path, sources: &Path, tree: &Path) -> Result<String> {
        let bin = work.join("bin");
        for folder in [&bin, sources, tree] {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let program = bin.join("dkms");
        let script = format!(
            "#!/bin/sh\nexec bash '{}' \"$@\" --sourcetree '{}' --dkmstree '{}' --installtree '{}'\n",
            self.folder.join("usr/sbin/dkms").display(),
            sources.display(),
            tree.display(),
            work.join("install").display()
        );
        fs::write(&program, script)
            .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot write {}", program.display()))?;
        let before = env::var("PATH").unwrap_or_default();
        Ok(format!("{}:{}:{before}", bin.display(), self.folder.join("sbin").display()))
    }
}

/// The one package in dkms' folder of sources, by name and version.
fn added(sources: &Path) -> Result<(String, String)> {
    let mut entries = fs::read_dir(sources).with_context(|| format!("cannot list {}", sources.display()))?;
    let name = entries.next().context("make dkms made no folder")??.file_name();
    let name = name.to_string_lossy();
    let (package, version) = name.rsplit_once('-').with_context(|| format!("{name} has no version"))?;
    Ok((package.to_owned(), version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_known_by_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(added(folder.path()).is_err());
        fs::create_dir(folder.path().join("perfctr-host-0.1.0")).unwrap();
        assert_eq!(added(folder.path()).unwrap(), ("perfctr-host".to_owned(), "0.1.0".to_owned()));
    }
}
