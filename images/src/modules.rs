//! This project's own kernel modules, built with all warnings against a series' headers.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::artefact::{self, Inputs, Key};
use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;
use crate::series::Series;

/// A module's source folder in the repository.
#[derive(Debug, Clone)]
pub struct ModuleSource {
    /// The name of the module: `<name>.ko` is built.
    pub name: &'static str,
    /// Its folder, with Kbuild.
    pub folder: PathBuf,
}

/// The guest driver of this repository.
pub fn guest_driver(repository: &Path) -> ModuleSource {
    ModuleSource { name: "perfctr", folder: repository.join("guest-driver/module") }
}

/// The module of this repository that counts for a host's VMMs.
pub fn host_module(repository: &Path) -> ModuleSource {
    ModuleSource { name: "perfctr_host", folder: repository.join("vpmu/host-module") }
}

/// All modules of this repository.
pub fn all(repository: &Path) -> Vec<ModuleSource> {
    vec![guest_driver(repository), host_module(repository)]
}

impl ModuleSource {
    /// Makes sure the module is built for a series, and returns its file and key.
    pub fn setup(&self, series: &Series, layout: &Layout, headers: &Key) -> Result<(PathBuf, Key)> {
        let folder = layout.driver_folder(series);
        let key = Inputs::of("module", 1).text(self.name).key(headers);
        let key = self.sources()?.into_iter().try_fold(key, |inputs, path| {
            inputs.text(&path.strip_prefix(&self.folder).unwrap_or(&path).to_string_lossy()).file(&path)
        })?;
        let key = key.finish();
        let path = folder.join(format!("{}.ko", self.name));
        artefact::ensure(&path, &key, |file| self.build(series, layout, file))?;
        Ok((path, key))
    }

    fn build(&self, series: &Series, layout: &Layout, file: &Path) -> Result<()> {
        let step = Step::begin(format!("module {} for {}", self.name, series.name));
        // In a copy: the kernel's make writes beside the sources, for one series at a time.
        let copy = file.with_extension("build");
        artefact::remove(&copy)?;
        for source in self.sources()? {
            let to = copy.join(source.strip_prefix(&self.folder)?);
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
            }
            fs::copy(&source, &to).with_context(|| format!("cannot copy {}", source.display()))?;
        }
        let log = layout.log(&format!("module-{}-{}", self.name, series.name));
        let mut warnings = Vec::new();
        let make = Program::new("make")
            .arg("-C")
            .arg(layout.kdir(series))
            .arg(format!("M={}", copy.display()))
            .arg(format!("-j{}", thread::available_parallelism().map_or(1, usize::from)))
            .args(["W=1", "modules"])
            // What a cargo above us set for its own jobs isn't for this make.
            .without_env("MAKEFLAGS")
            .log(&log);
        make.watch(|line| {
            if is_warning(line) {
                warnings.push(line.to_owned());
            }
        })?;
        if !warnings.is_empty() {
            bail!("warnings are errors here:\n{}\nfull output: {}", warnings.join("\n"), log.display());
        }
        let built = copy.join(format!("{}.ko", self.name));
        // Debug information is ten times the module, and guests never read it.
        Program::new("strip").arg("--strip-debug").arg(&built).run()?;
        artefact::rename(&built, file)?;
        artefact::remove(&copy)?;
        step.done("");
        Ok(())
    }

    /// The files the module is made from: what a build by hand left in the folder isn't among them.
    pub fn sources(&self) -> Result<Vec<PathBuf>> {
        let mut sources = artefact::files_below(&self.folder)?;
        sources.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let source = name.ends_with(".c") && !name.ends_with(".mod.c") || name.ends_with(".h");
            source || name == "Kbuild" || name == "Makefile"
        });
        Ok(sources)
    }
}

fn is_warning(line: &str) -> bool {
    // Unpacked packages carry no vmlinux for 6.1, so no type information is made; that says nothing of our code.
    let expected = ["Skipping BTF generation", "the compiler differs from the one"];
    let warning =
        ["warning:", "WARNING:"].iter().any(|word| line.to_lowercase().contains(&word.to_lowercase()));
    warning && !expected.iter().any(|text| line.contains(text))
}
