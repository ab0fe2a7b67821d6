//! Linux's `perf`, from its package, with its libraries ([`crate::bundle`]).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use goblin::elf::Elf;
use goblin::elf::reloc::R_X86_64_COPY;
use goblin::elf::sym::{STB_WEAK, STT_TLS};

use crate::archive::Archive;
use crate::artefact::{self, Inputs};
use crate::bundle;
use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;

/// The tool, and every package with a library that it or one of its libraries needs, less those in [`ABSENT`].
const PACKAGES: [&str; 12] = [
    "linux-perf",
    "libbz2-1.0",
    "libcap2",
    "libdw1",
    "libelf1",
    "liblzma5",
    "libnuma1",
    "libslang2",
    "libunwind8",
    "libzstd1",
    "zlib1g",
    // Changes where a program looks for its libraries.
    "patchelf",
];

/// Libraries that perf is linked with and calls only for scripts in these languages, for ARM's traces and for
/// conversion to CTF. With theirs they are half of all, and every machine would load them at every start. Instead there are empty ones
/// of these names ([`stand_in`]).
const ABSENT: [&str; 4] =
    ["libperl.so.5.36", "libpython3.11.so.1.0", "libopencsd_c_api.so.1", "libbabeltrace-ctf.so.1"];

/// Versions of symbols up to this one mean that there is none (the gABI's VER_NDX_GLOBAL).
const VER_NDX_GLOBAL: u16 = 1;

/// Makes sure perf is in the cache ([`Layout::perf`]).
pub fn setup(layout: &Layout, archive: &Archive) -> Result<()> {
    let pins =
        archive.pinned("perf", |archive| PACKAGES.iter().map(|package| archive.binary(package)).collect())?;
    let key = pins.iter().fold(Inputs::of("perf", 2), |inputs, pin| inputs.text(&pin.sha256)).finish();
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
        let libraries = bundle::collect(&program, &packages, &place, &ABSENT)?;
        stand_in(&program, &place, &libraries)?;
        bundle::point(&program, "$ORIGIN/../lib/perf", &packages, &place)?;
        artefact::remove(&packages)?;
        // Every symbol must be found, and not only when it is called.
        Program::new(&program).env("LD_BIND_NOW", "1").arg("--version").text()?;
        step.done(&format!("{} libraries", libraries.len()));
        Ok(())
    })?;
    Ok(())
}

/// Makes libraries with the names in [`ABSENT`]. One has all symbols that `program` wants and none of `libraries` has;
/// the C library's have versions, and those of the absent ones have none. Whoever calls one ends with SIGILL.
fn stand_in(program: &Path, place: &Path, libraries: &[PathBuf]) -> Result<()> {
    let mut present = BTreeSet::new();
    for library in libraries {
        let content = read(library)?;
        let elf = Elf::parse(&content).with_context(|| format!("{}", library.display()))?;
        let defined = elf.dynsyms.iter().filter(|symbol| !symbol.is_import());
        present.extend(defined.filter_map(|symbol| elf.dynstrtab.get_at(symbol.st_name).map(str::to_owned)));
    }
    let content = read(program)?;
    let elf = Elf::parse(&content).with_context(|| format!("{}", program.display()))?;
    // Variables of a library that a program reserves room for: their sizes must be the same.
    let copied: BTreeSet<usize> = elf
        .dynrelas
        .iter()
        .filter(|relocation| relocation.r_type == R_X86_64_COPY)
        .map(|relocation| relocation.r_sym)
        .collect();
    let versions = elf.versym.as_ref().context("perf's symbols have no versions; its package has changed")?;
    let mut source = String::new();
    for (index, symbol) in elf.dynsyms.iter().enumerate() {
        let name = elf.dynstrtab.get_at(symbol.st_name).unwrap_or_default();
        let versioned = versions.get_at(index).is_some_and(|version| version.version() > VER_NDX_GLOBAL);
        let wanted = symbol.is_import() || copied.contains(&index);
        if !wanted || versioned || symbol.st_bind() == STB_WEAK || name.is_empty() || present.contains(name) {
            continue;
        }
        let (section, kind, content) = match symbol.st_type() {
            STT_TLS => (".tbss,\"awT\",@nobits", "tls_object", format!(".skip {}", symbol.st_size.max(8))),
            _ if copied.contains(&index) => {
                (".bss,\"aw\",@nobits", "object", format!(".skip {}", symbol.st_size))
            }
            _ => (".text,\"ax\",@progbits", "function", "ud2".to_owned()),
        };
        source += &format!(
            ".section {section}\n.balign 16\n.globl {name}\n.type {name}, @{kind}\n{name}: {content}\n.size {name}, . - {name}\n"
        );
    }
    source += ".section .note.GNU-stack,\"\",@progbits\n";
    let file = place.join("absent.s");
    for name in ABSENT {
        fs::write(&file, &source).with_context(|| format!("cannot write {}", file.display()))?;
        let gcc = Program::new("gcc").args(["-shared", "-nostdlib", "-s", "-o"]).arg(place.join(name));
        gcc.arg(format!("-Wl,-soname,{name}")).arg(&file).run()?;
        source.clear();
    }
    artefact::remove(&file)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
