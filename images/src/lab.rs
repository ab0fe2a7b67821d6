//! The lab machine: QEMU from Debian's source with an emulated PMU, and its firmware.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result};

use crate::archive::{Archive, Pin};
use crate::artefact::{self, Inputs};
use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;

/// What isn't needed stays out: it builds in half the time and needs few libraries.
const CONFIGURE: [&str; 10] = [
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--without-default-devices",
    "--with-devices-x86_64=lab",
    "--enable-tcg",
    "--enable-system",
    "--disable-docs",
    "--disable-tools",
    "--disable-install-blobs",
    "--disable-debug-info",
];

/// The devices of the lab machine: a PC with PCI, and virtio ports to talk to it.
const DEVICES: &str = "CONFIG_I440FX=y\nCONFIG_HPET=y\nCONFIG_VIRTIO_PCI=y\nCONFIG_VIRTIO_SERIAL=y\n";

/// What the lab's QEMU is patched with.
pub fn patch(repository: &Path) -> PathBuf {
    repository.join("tests/lab/qemu-pmu.patch")
}

/// Makes sure the lab machine is in the cache.
pub fn setup(layout: &Layout, archive: &Archive, patch: &Path) -> Result<()> {
    let source = archive.pinned("qemu", |archive| Ok(vec![archive.source("qemu", ".orig.tar.xz")?]))?;
    let firmware = archive.pinned("firmware", |archive| {
        ["seabios", "qemu-system-data"].iter().map(|package| archive.binary(package)).collect()
    })?;
    let inputs = CONFIGURE
        .iter()
        .fold(Inputs::of("lab machine", 1).file(patch)?, |inputs, option| inputs.text(option));
    let key = source.iter().chain(&firmware).fold(inputs, |inputs, pin| inputs.text(&pin.sha256)).finish();
    artefact::ensure(&layout.lab_machine(), &key, |folder| {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        collect_firmware(archive, &firmware, folder)?;
        archive.fetch(&source)?.iter().try_for_each(|source| build(layout, source, patch, folder))
    })?;
    Ok(())
}

/// QEMU looks for its firmware by name in a list of folders; one folder with both packages' files will do.
fn collect_firmware(archive: &Archive, pins: &[Pin], folder: &Path) -> Result<()> {
    let package = folder.join("package");
    archive.unpack(pins, &package)?;
    let firmware = folder.join("firmware");
    fs::create_dir(&firmware).with_context(|| format!("cannot create {}", firmware.display()))?;
    for name in ["seabios", "qemu"] {
        let from = package.join("usr/share").join(name);
        for entry in fs::read_dir(&from).with_context(|| format!("cannot list {}", from.display()))? {
            let path = entry?.path();
            // Links lead into other packages, for other machines.
            let is_rom = path.extension().is_some_and(|extension| extension == "bin");
            if is_rom
                && let Some(name) = path.file_name()
                && path.is_file()
            {
                fs::copy(&path, firmware.join(name))
                    .with_context(|| format!("cannot copy {}", path.display()))?;
            }
        }
    }
    artefact::remove(&package)
}

fn build(layout: &Layout, source: &Path, patch: &Path, folder: &Path) -> Result<()> {
    let work = folder.join("source");
    let build = work.join("build");
    let log = |name: &str| layout.log(&format!("qemu-{name}"));
    fs::create_dir_all(&build).with_context(|| format!("cannot create {}", build.display()))?;

    let step = Step::begin("lab machine: unpack and patch QEMU");
    let unpack = Program::new("tar").arg("--extract").arg("--strip-components=1").arg("--file").arg(source);
    unpack.folder(&work).log(log("unpack")).run()?;
    let apply = Program::new("patch").args(["-p1", "--batch", "--fuzz=0"]).arg("-i").arg(patch).folder(&work);
    apply.log(log("patch")).run().context("QEMU's PMU patch doesn't apply to this source")?;
    let devices = work.join("configs/devices/x86_64-softmmu/lab.mak");
    fs::write(&devices, DEVICES).with_context(|| format!("cannot write {}", devices.display()))?;
    step.done("");

    let step = Step::begin("lab machine: configure QEMU");
    let configure = Program::new("../configure").args(CONFIGURE).folder(&build).log(log("configure"));
    configure.without_env("MAKEFLAGS").watch(|line| step.at(line))?;
    step.done("");

    let step = Step::begin("lab machine: build QEMU");
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let ninja = Program::new("ninja").arg(format!("-j{jobs}")).arg("qemu-system-x86_64").folder(&build);
    let mut total = String::new();
    ninja.log(log("build")).watch(|line| {
        // [12/1134] Compiling ...
        if let Some((count, _)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            step.at(count);
            count.rsplit('/').next().unwrap_or_default().clone_into(&mut total);
        }
    })?;
    Program::new("strip").arg("qemu-system-x86_64").folder(&build).run()?;
    artefact::rename(&build.join("qemu-system-x86_64"), &folder.join("qemu-system-x86_64"))?;
    artefact::remove(&work)?;
    step.done(&format!("{total} steps"));
    Ok(())
}
