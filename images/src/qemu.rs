//! Debian's QEMU, from its packages, with its libraries ([`crate::bundle`]) and firmware: what perfvisor is compared with.
//!
//! ```text
//! qemu/bin/{qemu-system-x86_64, qemu-system-x86_64-microvm}
//! qemu/share/*.{bin, rom}
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::archive::Archive;
use crate::artefact::{self, Inputs};
use crate::bundle;
use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;

/// The programs: one with all machines, one with microvm alone.
pub const PROGRAMS: [&str; 2] = ["qemu-system-x86_64", "qemu-system-x86_64-microvm"];

/// The programs, their firmware, and every package with a library that one of them or a library needs.
const PACKAGES: [&str; 48] = [
    "qemu-system-x86",
    "qemu-system-data",
    "seabios",
    "libaio1",
    "libblkid1",
    "libbpf1",
    "libcapstone4",
    "libdaxctl1",
    "libelf1",
    "libfdt1",
    "libffi8",
    "libfuse3-3",
    "libgcc-s1",
    "libglib2.0-0",
    "libgmp10",
    "libgnutls30",
    "libhogweed6",
    "libibverbs1",
    "libidn2-0",
    "libjpeg62-turbo",
    "libkmod2",
    "liblzma5",
    "libmount1",
    "libndctl6",
    "libnettle8",
    "libnl-3-200",
    "libnl-route-3-200",
    "libnuma1",
    "libp11-kit0",
    "libpcre2-8-0",
    "libpixman-1-0",
    "libpmem1",
    "libpng16-16",
    "librdmacm1",
    "libsasl2-2",
    "libseccomp2",
    "libselinux1",
    "libslirp0",
    "libssl3",
    "libtasn1-6",
    "libudev1",
    "libunistring2",
    "liburing2",
    "libuuid1",
    "libvdeplug2",
    "libzstd1",
    "zlib1g",
    // Changes where a program looks for its libraries.
    "patchelf",
];

/// Makes sure QEMU is in the cache ([`Layout::qemu`]), and returns its folder.
pub fn setup(layout: &Layout, refresh: bool) -> Result<PathBuf> {
    let _lock = layout.lock()?;
    let archive = Archive::open(layout, refresh);
    let pins = archive.pinned("qemu-incumbent", |archive| {
        PACKAGES.iter().map(|package| archive.binary(package)).collect()
    })?;
    let key = pins.iter().fold(Inputs::of("qemu", 1), |inputs, pin| inputs.text(&pin.sha256)).finish();
    artefact::ensure(&layout.qemu_folder(), &key, |folder| {
        archive.fetch(&pins)?;
        let step = Step::begin("QEMU");
        let packages = folder.join("packages");
        let place = folder.join("lib/qemu");
        for folder in [&packages, &folder.join("bin"), &place, &folder.join("share")] {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        archive.unpack(&pins, &packages)?;
        let mut libraries = BTreeSet::new();
        for name in PROGRAMS {
            let program = folder.join("bin").join(name);
            artefact::rename(&packages.join("usr/bin").join(name), &program)?;
            libraries.extend(bundle::collect(&program, &packages, &place, &[])?);
            bundle::point(&program, "$ORIGIN/../lib/qemu", &packages, &place)?;
        }
        firmware(&packages, &folder.join("share"))?;
        artefact::remove(&packages)?;
        for name in PROGRAMS {
            Program::new(folder.join("bin").join(name)).arg("-version").text()?;
        }
        step.done(&format!("{} libraries", libraries.len()));
        Ok(())
    })?;
    Ok(layout.qemu_folder())
}

/// What the machines of this processor boot with; the rest is for others, and large.
fn firmware(packages: &Path, to: &Path) -> Result<()> {
    const FILES: [&str; 7] = [
        "seabios/bios-256k.bin",
        "qemu/qboot.rom",
        "qemu/linuxboot.bin",
        "qemu/linuxboot_dma.bin",
        "qemu/kvmvapic.bin",
        "qemu/multiboot_dma.bin",
        "qemu/pvh.bin",
    ];
    for file in FILES {
        let from = packages.join("usr/share").join(file);
        let name = from.file_name().context("firmware without a name")?;
        fs::copy(&from, to.join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}
