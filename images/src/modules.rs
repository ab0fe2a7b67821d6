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
use crate::sparse::Sparse;

/// A module's source folder in the repository.
#[derive(Debug, Clone)]
pub struct ModuleSource {
    /// The name of the module: `<name>.ko` is built.
    pub name: &'static str,
    /// Its folder, with Kbuild.
    pub folder: PathBuf,
    /// What all modules have in common; Kbuild finds it in the repository, or copied into `folder`.
    shared: PathBuf,
}

/// The folder of what the modules have in common, and its name where it is copied.
const SHARED: &str = "vpmu/pmu";
const SHARED_COPY: &str = "pmu";

fn module(repository: &Path, name: &'static str, folder: &str) -> ModuleSource {
    ModuleSource { name, folder: repository.join(folder), shared: repository.join(SHARED) }
}

/// The guest driver of this repository.
pub fn guest_driver(repository: &Path) -> ModuleSource {
    module(repository, "perfctr", "guest-driver/module")
}

/// The module of this repository that counts for a host's VMMs.
pub fn host_module(repository: &Path) -> ModuleSource {
    module(repository, "perfctr_host", "vpmu/host-module")
}

/// All modules of this repository.
pub fn all(repository: &Path) -> Vec<ModuleSource> {
    vec![guest_driver(repository), host_module(repository)]
}

impl ModuleSource {
    /// Makes sure the module is built for a series, and returns its file and key.
    pub fn setup(&self, series: &Series, layout: &Layout, headers: &Key) -> Result<(PathBuf, Key)> {
        let key = self.inputs("module", headers)?.finish();
        let path = layout.driver_folder(series).join(format!("{}.ko", self.name));
        artefact::ensure(&path, &key, |file| self.build(series, layout, file))?;
        Ok((path, key))
    }

    /// Makes sure that sparse has no complaint about the module as built for a series.
    pub fn check(&self, series: &Series, layout: &Layout, headers: &Key, sparse: &Sparse) -> Result<()> {
        let key = self.inputs("module with sparse", headers)?.key(&sparse.key).finish();
        let path = layout.driver_folder(series).join(format!("{}.sparse", self.name));
        artefact::ensure(&path, &key, |file| {
            let step = Step::begin(format!("sparse {} for {}", self.name, series.name));
            let copy = file.with_extension("build");
            let check = format!("CHECK={}", sparse.program.display());
            // It cannot follow locks that a function takes on a condition.
            self.make(series, layout, &copy, "sparse", &["C=2", &check, "CF=-Wno-context"])?;
            artefact::remove(&copy)?;
            fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
            step.done("");
            Ok(())
        })?;
        Ok(())
    }

    pub(crate) fn inputs(&self, recipe: &str, headers: &Key) -> Result<Inputs> {
        let inputs = Inputs::of(recipe, 1).text(self.name).key(headers);
        self.sources()?
            .into_iter()
            .try_fold(inputs, |inputs, path| inputs.text(&self.place(&path).to_string_lossy()).file(&path))
    }

    fn build(&self, series: &Series, layout: &Layout, file: &Path) -> Result<()> {
        let step = Step::begin(format!("module {} for {}", self.name, series.name));
        let copy = file.with_extension("build");
        self.make(series, layout, &copy, "module", &[])?;
        let built = copy.join(format!("{}.ko", self.name));
        // Debug information is ten times the module, and guests never read it.
        Program::new("strip").arg("--strip-debug").arg(&built).run()?;
        artefact::rename(&built, file)?;
        artefact::remove(&copy)?;
        step.done("");
        Ok(())
    }

    /// Runs the kernel's make in a copy of the sources, for it writes beside them, for one series at a time. A warning
    /// is an error.
    fn make(
        &self,
        series: &Series,
        layout: &Layout,
        copy: &Path,
        what: &str,
        arguments: &[&str],
    ) -> Result<()> {
        artefact::remove(copy)?;
        for source in self.sources()? {
            let to = copy.join(self.place(&source));
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
            }
            fs::copy(&source, &to).with_context(|| format!("cannot copy {}", source.display()))?;
        }
        let log = layout.log(&format!("{what}-{}-{}", self.name, series.name));
        let mut warnings = Vec::new();
        let make = Program::new("make")
            .arg("-C")
            .arg(layout.kdir(series))
            .arg(format!("M={}", copy.display()))
            .arg(format!("-j{}", thread::available_parallelism().map_or(1, usize::from)))
            .args(["W=1", "modules"])
            .args(arguments)
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
        Ok(())
    }

    /// Where a source is to be below the folder that the module is built in.
    fn place(&self, source: &Path) -> PathBuf {
        match (source.strip_prefix(&self.folder), source.strip_prefix(&self.shared)) {
            (Ok(own), _) => own.to_owned(),
            (_, Ok(shared)) => Path::new(SHARED_COPY).join(shared),
            _ => source.to_owned(),
        }
    }

    /// The files the module is made from: what a build by hand left in the folder isn't among them.
    pub fn sources(&self) -> Result<Vec<PathBuf>> {
        let mut sources = artefact::files_below(&self.folder)?;
        sources.extend(artefact::files_below(&self.shared)?);
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
    let expected = ["skipping btf generation", "the compiler differs from the one"];
    // sparse's errors do not fail the make.
    let line = line.to_lowercase();
    let warning = ["warning:", " error: "].iter().any(|word| line.contains(word));
    warning && !expected.iter().any(|text| line.contains(text))
}
