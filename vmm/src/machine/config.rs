//! What a machine is made of.

use std::path::PathBuf;
use std::str::FromStr;

use vpmu::PmuConfig;

use crate::confinement::Confinement;
use crate::vcpu::kvm_pmu::KvmPmu;

/// The PMU that a guest gets.
#[derive(Clone, Copy, Debug)]
pub enum GuestPmu {
    /// None.
    None,
    /// The engine's, behind perfvisor's interfaces.
    Virtual(PmuConfig),
    /// KVM's own, of which the VMM sees nothing but what it asks for.
    Kvm(KvmPmu),
}

impl GuestPmu {
    /// The engine's configuration, if it is the engine's.
    pub(super) fn of_engine(&self) -> Option<&PmuConfig> {
        match self {
            Self::Virtual(config) => Some(config),
            Self::None | Self::Kvm(_) => None,
        }
    }

    pub(super) fn of_kvm(&self) -> Option<KvmPmu> {
        match self {
            Self::Kvm(pmu) => Some(*pmu),
            Self::None | Self::Virtual(_) => None,
        }
    }
}

/// What a machine is made of.
pub struct Config {
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// A kernel that [`super::boot::recognize`] knows.
    pub kernel: PathBuf,
    /// The initial RAM disk of a Linux kernel.
    pub initrd: Initrd,
    /// What a kernel of another kind is given.
    pub modules: Vec<Module>,
    /// Its command line.
    pub cmdline: String,
    /// The virtual PMU.
    pub pmu: GuestPmu,
    /// Of the machine's threads.
    pub confinement: Confinement,
}

/// The parts of an initial RAM disk: one file, and what is put behind it.
#[derive(Debug, Default)]
pub struct Initrd {
    /// A cpio archive, compressed or not.
    pub base: Option<PathBuf>,
    /// An uncompressed cpio archive that the kernel unpacks over the first.
    pub overlay: Vec<u8>,
}

/// A file for the kernel, and words for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The file.
    pub path: PathBuf,
    /// What the kernel reads beside the file.
    pub words: String,
}

impl FromStr for Module {
    type Err = String;

    /// `FILE` or `FILE,WORDS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (path, words) = text.split_once(',').unwrap_or((text, ""));
        if path.is_empty() {
            return Err("a module is a file, or a file, a comma and words for it".to_owned());
        }
        Ok(Self { path: path.into(), words: words.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_comma_parts_the_file_from_its_words() {
        let module = |path: &str, words: &str| Ok(Module { path: path.into(), words: words.to_owned() });
        assert_eq!("a/b".parse(), module("a/b", ""));
        assert_eq!("a/b,x=1,2 y".parse(), module("a/b", "x=1,2 y"));
        assert!(",x".parse::<Module>().is_err());
    }
}
