//! The root file systems of guests and of the lab machine: everything in memory, nothing to mount.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::archive::{Archive, Pin};
use crate::artefact::{self, Inputs, Key};
use crate::kernels::{self, ModuleSet};
use crate::layout::{FOR_LAB, LAB_CACHE, Layout, UNCOMPRESSED};
use crate::process::Program;
use crate::progress::Step;
use crate::series::{self, Series};
use crate::tree::Tree;

/// Where init finds the modules, and the list of them: a path and options per line, in load order.
const MODULES: &str = "/lib/perfvisor/modules";
const MODULES_LOAD: &str = "/lib/perfvisor/modules.load";

const FOLDERS: [&str; 10] =
    ["/dev", "/etc", "/mnt", "/proc", "/root", "/run", "/sys", "/tmp", "/usr/share", "/var/tmp"];

/// This repository's programs that go into the images, static.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The first process.
    pub init: PathBuf,
    /// Counts a command.
    pub perfex: PathBuf,
}

impl Programs {
    /// As cargo leaves them in a folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self { init: folder.join("init"), perfex: folder.join("perfex") }
    }
}

/// Makes sure busybox is in the cache and returns its key.
pub fn setup_busybox(layout: &Layout, archive: &Archive) -> Result<Key> {
    let pins = archive.pinned("busybox", |archive| Ok(vec![archive.binary("busybox-static")?]))?;
    let key = pins
        .iter()
        .fold(Inputs::of("busybox", 1), |inputs: Inputs, pin: &Pin| inputs.text(&pin.sha256))
        .finish();
    artefact::ensure(&layout.busybox(), &key, |file| {
        let package = file.with_extension("package");
        artefact::remove(&package)?;
        archive.unpack(&pins, &package)?;
        artefact::rename(&package.join("bin/busybox"), file)?;
        artefact::remove(&package)
    })?;
    Ok(key)
}

/// What a guest's or the lab's root is made from.
pub struct Recipe<'a> {
    /// The cache.
    pub layout: &'a Layout,
    /// Our programs.
    pub programs: &'a Programs,
    /// The key of busybox.
    pub busybox: &'a Key,
}

impl Recipe<'_> {
    /// Makes sure the initramfs of guests of a series is in the cache, and returns its key.
    pub fn setup_guest(&self, series: &Series, kernel: &Key, driver: &(PathBuf, Key)) -> Result<Key> {
        let key = self.inputs("guest initramfs")?.key(kernel).key(&driver.1).finish();
        artefact::ensure(&self.layout.guest_initramfs(series), &key, |file| {
            let step = Step::begin(format!("initramfs for guests with {}", series.name));
            let mut tree = self.base()?;
            self.add_modules(&mut tree, series, &kernels::GUEST, &driver.0)?;
            write(&tree, file, step)
        })?;
        Ok(key)
    }

    /// Makes sure the initramfs of the lab machine is in the cache. It carries the guests' images, each given with
    /// the key of its initramfs; the lab's own kernel is one of theirs. `module` is the host module for that kernel.
    pub fn setup_lab(&self, guests: &[(Series, Key)], module: &(PathBuf, Key)) -> Result<()> {
        let key = self.inputs("lab initramfs with uncompressed kernels")?.key(&module.1);
        let key = guests.iter().fold(key, |inputs, (series, key)| inputs.text(series.name).key(key));
        artefact::ensure(&self.layout.lab_initramfs(), &key.finish(), |file| {
            let step = Step::begin("initramfs of the lab machine");
            let mut tree = self.base()?;
            self.add_modules(&mut tree, &series::DEFAULT, &kernels::LAB, &module.0)?;
            let inside = Layout::at(LAB_CACHE);
            for (series, _) in guests {
                let same = ["bzImage", "release", "initramfs.cpio"].map(|name| (name, name));
                for (name, inside_name) in same.into_iter().chain([(FOR_LAB, UNCOMPRESSED)]) {
                    let from = self.layout.kernel_folder(series).join(name);
                    tree.file(inside.kernel_folder(series).join(inside_name), 0o644, read(&from)?)?;
                }
            }
            write(&tree, file, step)
        })?;
        Ok(())
    }

    fn inputs(&self, recipe: &str) -> Result<Inputs> {
        let inputs = Inputs::of(recipe, 1).key(self.busybox);
        inputs.file(&self.programs.init)?.file(&self.programs.perfex)
    }

    /// What all images have: init, busybox under all its names, perfex.
    fn base(&self) -> Result<Tree> {
        let mut tree = Tree::new();
        for folder in FOLDERS {
            tree.folder(folder)?;
        }
        tree.file("/init", 0o755, read(&self.programs.init)?)?;
        // The kernel gives init this as its first three files, before anything is mounted on /dev.
        tree.character_device("/dev/console", 0o600, 5, 1)?;
        tree.file("/usr/bin/perfex", 0o755, read(&self.programs.perfex)?)?;
        let busybox = self.layout.busybox();
        let applets = Program::new(&busybox).arg("--list-full").text()?;
        tree.file("/bin/busybox", 0o755, read(&busybox)?)?;
        for applet in applets.lines().map(|applet| Path::new("/").join(applet)) {
            // Not busybox itself, nor its init in place of ours.
            if !tree.contains(&applet)
                && applet.file_name().is_some_and(|name| name != "init" && name != "linuxrc")
            {
                tree.link(&applet, "/bin/busybox")?;
            }
        }
        tree.file(
            "/etc/passwd",
            0o644,
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
        )?;
        tree.file("/etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n")?;
        Ok(tree)
    }

    fn add_modules(&self, tree: &mut Tree, series: &Series, set: &ModuleSet, own: &Path) -> Result<()> {
        let folder = self.layout.kernel_modules(series);
        let list = folder.join(format!("{}.load", set.name));
        let list = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
        let mut load = String::new();
        let mut add = |from: &Path, options: &str| -> Result<()> {
            let name = from.file_name().context("a module without a name")?;
            let to = Path::new(MODULES).join(name);
            load += format!("{} {options}", to.display()).trim_end();
            load.push('\n');
            tree.file(&to, 0o644, read(from)?)
        };
        for line in list.lines() {
            let (name, options) = line.split_once(' ').unwrap_or((line, ""));
            add(&folder.join(name), options)?;
        }
        add(own, "")?;
        tree.file(MODULES_LOAD, 0o644, load)
    }
}

fn write(tree: &Tree, file: &Path, step: Step) -> Result<()> {
    let archive = tree.to_cpio()?;
    fs::write(file, &archive).with_context(|| format!("cannot write {}", file.display()))?;
    step.done(&format!("{:.1} MB", archive.len() as f64 / 1e6));
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
