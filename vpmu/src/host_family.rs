//! Which processor the host is, as far as its events are concerned.

use std::fmt;

use crate::family::Model;

/// Families of processors that share an event encoding: what a host is, and what a guest is told that it is.
///
/// AMD's event codes change their meaning from one generation to the next (0D1: dispatch stalls until family 16h,
/// conditional branches since Zen), so each generation is a family of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "AMD's are called by their family numbers, until those were many cores")]
pub enum HostFamily {
    K7,
    K8,
    Fam10h,
    Fam11h,
    Fam12h,
    Fam14h,
    Fam15h,
    Fam16h,
    /// And Hygon's family 18h, and whatever else has PerfMonV2.
    Zen,
    Zen2,
    Zen3,
    Zen4,
    Zen5,
    /// AMD of a generation that is not known here: only what all generations have in common is known.
    Amd,
    /// Intel with architectural performance monitoring. Other events are those of one model.
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

    /// Every family.
    pub const ALL: [Self; 16] = [
        Self::K7,
        Self::K8,
        Self::Fam10h,
        Self::Fam11h,
        Self::Fam12h,
        Self::Fam14h,
        Self::Fam15h,
        Self::Fam16h,
        Self::Zen,
        Self::Zen2,
        Self::Zen3,
        Self::Zen4,
        Self::Zen5,
        Self::Amd,
        Self::Intel,
        Self::Other,
    ];

    /// Whether it is one of AMD's.
    pub const fn is_amd(self) -> bool {
        !matches!(self, Self::Intel | Self::Other)
    }

    /// The generation of an AMD processor with this family and model (as software computes them).
    pub(crate) const fn of_amd(family: u32, model: u32, core_extension: bool, perfmon_v2: bool) -> Self {
        match family {
            // Virtual processors may have any family. PerfMonV2 is Zen's, and what all Zens have is assumed.
            0..0x19 if perfmon_v2 => Self::Zen,
            // No such processor was made, so what it counts is not known by its family.
            0..0x15 if core_extension => Self::Amd,
            6 => Self::K7,
            0x0F => Self::K8,
            0x10 => Self::Fam10h,
            0x11 => Self::Fam11h,
            0x12 => Self::Fam12h,
            0x14 => Self::Fam14h,
            0x15 => Self::Fam15h,
            0x16 => Self::Fam16h,
            // Models as Linux tells them apart (arch/x86/kernel/cpu/amd.c).
            0x17 => match model {
                0x30..=0x4F | 0x60..=0x7F | 0x90..=0x91 | 0xA0..=0xAF => Self::Zen2,
                _ => Self::Zen,
            },
            // Hygon's, which is a Zen.
            0x18 => Self::Zen,
            0x19 => match model {
                0x10..=0x1F | 0x60..=0xAF => Self::Zen4,
                _ => Self::Zen3,
            },
            0x1A => match model {
                0x00..=0x2F | 0x40..=0x4F | 0x60..=0x7F => Self::Zen5,
                _ => Self::Amd,
            },
            _ => Self::Amd,
        }
    }

    /// A processor of this family as its manuals describe it.
    pub const fn processor(self) -> Host {
        let nearest = match self {
            Self::K7 => Model::K7,
            Self::K8 => Model::K8,
            Self::Fam10h | Self::Fam11h | Self::Fam12h | Self::Fam14h | Self::Fam16h | Self::Amd => {
                Model::Fam10h
            }
            Self::Fam15h | Self::Zen | Self::Zen2 | Self::Zen3 => Model::AmdCore,
            Self::Zen4 | Self::Zen5 => Model::AmdV2,
            Self::Intel => Model::IntelV4,
            Self::Other => Model::Generic,
        };
        Host { family: self, nearest, native: !matches!(self, Self::Other) }
    }
}

impl fmt::Display for HostFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::K7 => "AMD K7",
            Self::K8 => "AMD K8",
            Self::Fam10h => "AMD family 10h",
            Self::Fam11h => "AMD family 11h",
            Self::Fam12h => "AMD family 12h",
            Self::Fam14h => "AMD family 14h",
            Self::Fam15h => "AMD family 15h",
            Self::Fam16h => "AMD family 16h",
            Self::Zen => "AMD Zen",
            Self::Zen2 => "AMD Zen 2",
            Self::Zen3 => "AMD Zen 3",
            Self::Zen4 => "AMD Zen 4",
            Self::Zen5 => "AMD Zen 5",
            Self::Amd => "AMD",
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
        Self {
            family: HostFamily::of_amd(family, model, core_extension, perfmon_v2),
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
        use HostFamily::*;
        for (signature, core_extension, family, nearest) in [
            (0x0000_0681, false, K7, Model::K7),
            (0x0000_0F5A, false, K8, Model::K8),
            (0x0010_0F23, false, Fam10h, Model::Fam10h),
            (0x0020_0F31, false, Fam11h, Model::Fam10h),
            (0x0030_0F10, false, Fam12h, Model::Fam10h),
            (0x0050_0F10, false, Fam14h, Model::Fam10h),
            (0x0060_0F12, true, Fam15h, Model::AmdCore),
            (0x0070_0F01, true, Fam16h, Model::AmdCore),
            (0x0080_0F11, true, Zen, Model::AmdCore),
            (0x0083_0F10, true, Zen2, Model::AmdCore),
            (0x0087_0F10, true, Zen2, Model::AmdCore),
            (0x0090_0F01, true, Zen, Model::AmdCore),
            (0x00A0_0F11, true, Zen3, Model::AmdCore),
            (0x00A2_0F10, true, Zen3, Model::AmdCore),
            // A Zen whose hypervisor hides the extension.
            (0x0083_0F10, false, Zen2, Model::Fam10h),
            // What was never made.
            (0x0000_0663, true, Amd, Model::AmdCore),
            (0x00D0_0F00, true, Amd, Model::AmdCore),
        ] {
            assert_eq!(amd(signature, core_extension, false), (family, nearest), "{signature:#x}");
        }
        for (signature, family) in [
            (0x00A1_0F11, Zen4),
            (0x00A6_0F12, Zen4),
            (0x00B0_0F21, Zen5),
            (0x00B4_0F40, Zen5),
            (0x00B5_0F00, Amd),
            // The lab's.
            (0x0000_0663, Zen),
        ] {
            assert_eq!(amd(signature, true, true), (family, Model::AmdV2), "{signature:#x}");
        }
    }

    #[test]
    fn a_processor_of_each_family() {
        for family in HostFamily::ALL {
            let host = family.processor();
            assert_eq!((host.family, host.native), (family, family != HostFamily::Other));
        }
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
