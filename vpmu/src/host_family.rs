//! Which processor the host is, as far as its events are concerned.

use std::fmt;

use crate::family::Model;

/// Families of hosts that share an event encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostFamily {
    /// AMD before family 17h: only what all AMD processors have in common is known.
    Amd,
    /// AMD and Hygon from family 17h on, and whatever else has PerfMonV2.
    Zen,
    /// AMD from Zen 2 on, which have a reference clock event.
    Zen2,
    /// Intel with architectural performance monitoring.
    Intel,
    /// Anything else: no event is known.
    Other,
}

impl HostFamily {
    /// The family of the processor this runs on.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        Host::detect().family
    }
}

impl fmt::Display for HostFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Amd => "AMD",
            Self::Zen => "AMD Zen",
            Self::Zen2 => "AMD Zen 2",
            Self::Intel => "Intel",
            Self::Other => "other",
        })
    }
}

/// A host processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// How its events are encoded.
    pub family: HostFamily,
    /// The model nearest to its own counters.
    pub nearest: Model,
    /// Whether it is one of `nearest`, so that a guest with that model can be told the host's own identity.
    pub native: bool,
}

/// EAX, EBX, ECX and EDX of a CPUID leaf.
type Leaf = [u32; 4];

impl Host {
    /// The processor this runs on.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        Self::from_cpuid(cpuid)
    }

    /// The processor that `cpuid` speaks for.
    pub fn from_cpuid(cpuid: impl Fn(u32) -> Leaf) -> Self {
        let [last, ebx, ecx, edx] = cpuid(0);
        let mut vendor = [0; 12];
        for (text, register) in vendor.chunks_exact_mut(4).zip([ebx, edx, ecx]) {
            text.copy_from_slice(&register.to_le_bytes());
        }
        match &vendor {
            b"AuthenticAMD" | b"HygonGenuine" => Self::amd(cpuid),
            b"GenuineIntel" => Self::intel(if last >= 0xA { cpuid(0xA) } else { [0; 4] }),
            _ => Self { family: HostFamily::Other, nearest: Model::Generic, native: false },
        }
    }

    fn amd(cpuid: impl Fn(u32) -> Leaf) -> Self {
        let last = cpuid(0x8000_0000)[0];
        let extended = |leaf| if last >= leaf { cpuid(leaf) } else { [0; 4] };
        let core_extension = extended(0x8000_0001)[2] & 1 << 23 != 0;
        let perfmon_v2 = extended(0x8000_0022)[0] & 1 != 0;
        let (family, model) = family_and_model(cpuid(1)[0]);
        let zen2 = match family {
            // As Linux tells Zen 2 from Zen (arch/x86/kernel/cpu/amd.c).
            0x17 => matches!(model, 0x30..=0x4F | 0x60..=0x7F | 0x90..=0x91 | 0xA0..=0xAF),
            // Hygon's, which is a Zen.
            0x18 => false,
            family => family >= 0x19,
        };
        Self {
            family: match family {
                _ if zen2 => HostFamily::Zen2,
                0x17.. => HostFamily::Zen,
                // Virtual processors may have any family.
                _ if perfmon_v2 => HostFamily::Zen,
                _ => HostFamily::Amd,
            },
            nearest: match (perfmon_v2, core_extension, family) {
                (true, ..) => Model::AmdV2,
                (_, true, _) => Model::AmdCore,
                (_, _, 0x10..) => Model::Fam10h,
                (_, _, 15) => Model::K8,
                _ => Model::K7,
            },
            native: true,
        }
    }

    fn intel([eax, ..]: Leaf) -> Self {
        let nearest = match eax & 0xFF {
            0 => return Self { family: HostFamily::Other, nearest: Model::Generic, native: false },
            1 => Model::IntelV1,
            2 => Model::IntelV2,
            3 => Model::IntelV3,
            4 => Model::IntelV4,
            _ => Model::IntelV5,
        };
        Self { family: HostFamily::Intel, nearest, native: true }
    }
}

/// Base plus extended family and model of leaf 1 EAX, as AMD computes them.
fn family_and_model(signature: u32) -> (u32, u32) {
    let (family, model) = (signature >> 8 & 0xF, signature >> 4 & 0xF);
    match family {
        0xF => (family + (signature >> 20 & 0xFF), model | signature >> 12 & 0xF0),
        _ => (family, model),
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, unused_unsafe, reason = "CPUID is an unsafe intrinsic before Rust 1.94")]
fn cpuid(leaf: u32) -> Leaf {
    // SAFETY: every x86-64 processor has CPUID.
    let leaf = unsafe { std::arch::x86_64::__cpuid(leaf) };
    [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A processor with these leaves, the highest ones in 0 and 8000_0000.
    fn host(vendor: &[u8; 12], leaves: &[(u32, Leaf)]) -> Host {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| vendor[at + i]));
        let last = |from: u32| {
            leaves.iter().map(|(leaf, _)| *leaf).filter(|leaf| leaf & 1 << 31 == from).max().unwrap_or(from)
        };
        Host::from_cpuid(|leaf| match leaf {
            0 => [last(0), word(0), word(8), word(4)],
            0x8000_0000 => [last(1 << 31), 0, 0, 0],
            // A leaf beyond the last repeats something, as Intel's do.
            _ => leaves.iter().find(|(number, _)| *number == leaf).map_or([u32::MAX; 4], |(_, leaf)| *leaf),
        })
    }

    fn amd(signature: u32, core_extension: bool, perfmon_v2: bool) -> (HostFamily, Model) {
        let mut leaves = vec![(1, [signature, 0, 0, 0])];
        leaves.push((0x8000_0001, [0, 0, u32::from(core_extension) << 23, 0]));
        if perfmon_v2 {
            leaves.push((0x8000_0022, [1, 6, 0, 0]));
        }
        let host = host(b"AuthenticAMD", &leaves);
        (host.family, host.nearest)
    }

    #[test]
    fn amd_by_family_and_features() {
        assert_eq!(amd(0x0000_0681, false, false), (HostFamily::Amd, Model::K7));
        assert_eq!(amd(0x0000_0F5A, false, false), (HostFamily::Amd, Model::K8));
        assert_eq!(amd(0x0010_0F23, false, false), (HostFamily::Amd, Model::Fam10h));
        assert_eq!(amd(0x0060_0F12, true, false), (HostFamily::Amd, Model::AmdCore));
        assert_eq!(amd(0x0080_0F11, true, false), (HostFamily::Zen, Model::AmdCore));
        assert_eq!(amd(0x0083_0F10, true, false), (HostFamily::Zen2, Model::AmdCore));
        assert_eq!(amd(0x0090_0F01, true, false), (HostFamily::Zen, Model::AmdCore));
        assert_eq!(amd(0x00A1_0F11, true, true), (HostFamily::Zen2, Model::AmdV2));
        assert_eq!(amd(0x0000_0663, true, true), (HostFamily::Zen, Model::AmdV2), "the lab's");
    }

    #[test]
    fn intel_by_version() {
        let intel = |version| {
            let host = host(b"GenuineIntel", &[(1, [0x0005_06E3, 0, 0, 0]), (0xA, [version, 0, 0, 0])]);
            (host.family, host.nearest)
        };
        assert_eq!(intel(0x0728_0202), (HostFamily::Intel, Model::IntelV2));
        assert_eq!(intel(0x0730_0404), (HostFamily::Intel, Model::IntelV4));
        assert_eq!(intel(0x0830_0806), (HostFamily::Intel, Model::IntelV5));
        // No PMU: a virtual machine, or a P4.
        assert_eq!(intel(0), (HostFamily::Other, Model::Generic));
        let host = host(b"GenuineIntel", &[(1, [0xF29, 0, 0, 0]), (2, [0; 4])]);
        assert_eq!((host.family, host.nearest), (HostFamily::Other, Model::Generic));
    }

    #[test]
    fn others_are_generic() {
        let host = host(b"CentaurHauls", &[(1, [0; 4]), (0xA, [0x0730_0202, 0, 0, 0])]);
        assert_eq!((host.family, host.nearest), (HostFamily::Other, Model::Generic));
    }
}
