//! Stock kernels, from their packages: the image, its release, and the few modules guests and the lab need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::archive::{Archive, Pin};
use crate::artefact::{self, Inputs, Key};
use crate::layout::{FOR_LAB, Layout};
use crate::modinfo::{self, Inventory};
use crate::process::Program;
use crate::progress::Step;
use crate::series::Series;
use crate::uncompressed;

/// A set of modules with the options to load them with.
pub struct ModuleSet {
    /// The list `modules/<name>.load` is written for it.
    pub name: &'static str,
    modules: &'static [(&'static str, &'static str)],
}

/// For guests: a virtio console on MMIO, and the MSR device for tests.
pub const GUEST: ModuleSet = ModuleSet {
    name: "guest",
    modules: &[("virtio", ""), ("virtio_ring", ""), ("virtio_mmio", ""), ("virtio_console", ""), ("msr", "")],
};

/// For the lab's host kernel: KVM, and QEMU's virtio devices on PCI.
pub const LAB: ModuleSet = ModuleSet {
    name: "lab",
    modules: &[
        ("virtio_pci", ""),
        ("virtio_console", ""),
        ("msr", ""),
        // Polling before a halt would make the instructions a host executes depend on time.
        ("kvm", "halt_poll_ns=0"),
        ("kvm_amd", ""),
    ],
};

/// Makes sure the kernel of a series is in the cache and returns its key.
pub fn setup(series: &Series, layout: &Layout, archive: &Archive) -> Result<Key> {
    let pins = archive.pinned(&format!("kernel-{}", series.name), |archive| {
        let package = archive.dependencies(series.image_meta)?.into_iter().next();
        let package = package.with_context(|| format!("{} depends on no image", series.image_meta))?;
        Ok(vec![archive.binary(&package)?])
    })?;
    let key = pins.iter().fold(Inputs::of("kernel", 3), |inputs, pin| inputs.text(&pin.sha256));
    let key = [GUEST, LAB]
        .iter()
        .flat_map(|set| set.modules)
        .fold(key, |inputs, (module, options)| inputs.text(module).text(options));
    let key = key.finish();
    // The initramfs lives in the same folder and goes with it: it holds this kernel's modules.
    artefact::ensure(&layout.kernel_folder(series), &key, |folder| build(series, archive, &pins, folder))?;
    Ok(key)
}

fn build(series: &Series, archive: &Archive, pins: &[Pin], folder: &Path) -> Result<()> {
    archive.fetch(pins)?;
    let step = Step::begin(format!("kernel {}", series.name));
    let package = folder.join("package");
    let modules = folder.join("modules");
    fs::create_dir_all(&modules).with_context(|| format!("cannot create {}", modules.display()))?;
    archive.unpack(pins, &package)?;
    let release = only_entry(&package.join("lib/modules"))?;
    let image = package.join("boot").join(format!("vmlinuz-{release}"));
    let bzimage = folder.join("bzImage");
    artefact::rename(&image, &bzimage)?;
    uncompressed::write(&bzimage, &folder.join(FOR_LAB))?;
    fs::write(folder.join("release"), format!("{release}\n"))?;
    let stock = StockModules::read(&package.join("lib/modules").join(&release))?;
    for set in [GUEST, LAB] {
        stock.collect(&set, &modules)?;
    }
    artefact::remove(&package)?;
    step.done(&release);
    Ok(())
}

/// The modules of an unpacked kernel package.
struct StockModules {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

impl StockModules {
    fn read(folder: &Path) -> Result<Self> {
        let list = folder.join("modules.builtin");
        let list = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
        let builtin = list.lines().map(modinfo::canonical).collect();
        let files = artefact::files_below(&folder.join("kernel"))?;
        let files =
            files.into_iter().map(|path| (modinfo::canonical(&path.to_string_lossy()), path)).collect();
        Ok(Self { files, builtin })
    }

    /// Writes a set's modules as plain files, and the list that says in which order to load them.
    fn collect(&self, set: &ModuleSet, folder: &Path) -> Result<()> {
        let file = |name: &str| self.files.get(name).map(|path| plain(path)).transpose();
        let wanted: Vec<&str> = set.modules.iter().map(|(name, _)| *name).collect();
        let order = modinfo::load_order(&wanted, &Inventory { file: &file, builtin: &self.builtin })?;
        let mut list = String::new();
        for (name, content) in order {
            fs::write(folder.join(format!("{name}.ko")), content)?;
            let options =
                set.modules.iter().find(|(module, _)| *module == name).map_or("", |(_, options)| options);
            list += format!("{name}.ko {options}").trim_end();
            list.push('\n');
        }
        fs::write(folder.join(format!("{}.load", set.name)), list)?;
        Ok(())
    }
}

/// A module's file, decompressed: the kernel's own decompression would need more of user space than our init has.
fn plain(path: &Path) -> Result<Vec<u8>> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => Program::new("xz").arg("-dc").arg(path).output(),
        _ => fs::read(path).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn only_entry(folder: &Path) -> Result<String> {
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let entry = entries.next().with_context(|| format!("{} is empty", folder.display()))??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}
