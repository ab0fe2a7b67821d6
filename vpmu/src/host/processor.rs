//! The host's processor, as CPUID reports it: the family of its events, and the kind of its counters.

use crate::host::family::HostFamily;

/// A host processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// How its events are encoded.
    pub family: HostFamily,
    /// Its own counters.
    pub counters: HostCounters,
}

/// The counters that CPUID describes. Which guest PMU is the same is said by the family tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "AMD's are called as in the family tables")]
pub enum HostCounters {
    /// None that are known.
    None,
    K7,
    K8,
    Fam10h,
    /// The core performance counter extension.
    AmdCore,
    /// PerfMonV2.
    AmdV2,
    /// Intel's architectural performance monitoring of this version, 1 to 5; later ones are as good as 5.
    Intel(u8),
}

impl HostFamily {
    /// The family of the processor this runs on.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        Host::detect().family
    }

    /// A processor of this family as its manuals describe it.
    pub const fn processor(self) -> Host {
        let counters = match self {
            Self::K7 => HostCounters::K7,
            Self::K8 => HostCounters::K8,
            Self::Fam10h | Self::Fam11h | Self::Fam12h | Self::Fam14h | Self::Fam16h | Self::Amd => {
                HostCounters::Fam10h
            }
            Self::Fam15h | Self::Zen | Self::Zen2 | Self::Zen3 => HostCounters::AmdCore,
            Self::Zen4 | Self::Zen5 => HostCounters::AmdV2,
            Self::Intel => HostCounters::Intel(4),
            Self::Other => HostCounters::None,
        };
        Host { family: self, counters }
    }
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
            _ => HostFamily::Other.processor(),
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
            counters: match (perfmon_v2, core_extension, family) {
                (true, ..) => HostCounters::AmdV2,
                (_, true, _) => HostCounters::AmdCore,
                (_, _, 0x10..) => HostCounters::Fam10h,
                (_, _, 15) => HostCounters::K8,
                _ => HostCounters::K7,
            },
        }
    }

    fn intel([eax, ..]: Leaf) -> Self {
        match eax as u8 {
            0 => HostFamily::Other.processor(),
            version => Self { family: HostFamily::Intel, counters: HostCounters::Intel(version.min(5)) },
        }
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

    fn amd(signature: u32, core_extension: bool, perfmon_v2: bool) -> (HostFamily, HostCounters) {
        let mut leaves = vec![(1, [signature, 0, 0, 0])];
        leaves.push((0x8000_0001, [0, 0, u32::from(core_extension) << 23, 0]));
        if perfmon_v2 {
            leaves.push((0x8000_0022, [1, 6, 0, 0]));
        }
        let host = host(b"AuthenticAMD", &leaves);
        (host.family, host.counters)
    }

    #[test]
    fn amd_by_family_and_features() {
        use HostFamily::*;
        for (signature, core_extension, family, counters) in [
            (0x0000_0681, false, K7, HostCounters::K7),
            (0x0000_0F5A, false, K8, HostCounters::K8),
            (0x0010_0F23, false, Fam10h, HostCounters::Fam10h),
            (0x0020_0F31, false, Fam11h, HostCounters::Fam10h),
            (0x0030_0F10, false, Fam12h, HostCounters::Fam10h),
            (0x0050_0F10, false, Fam14h, HostCounters::Fam10h),
            (0x0060_0F12, true, Fam15h, HostCounters::AmdCore),
            (0x0070_0F01, true, Fam16h, HostCounters::AmdCore),
            (0x0080_0F11, true, Zen, HostCounters::AmdCore),
            (0x0083_0F10, true, Zen2, HostCounters::AmdCore),
            (0x0087_0F10, true, Zen2, HostCounters::AmdCore),
            (0x0090_0F01, true, Zen, HostCounters::AmdCore),
            (0x00A0_0F11, true, Zen3, HostCounters::AmdCore),
            (0x00A2_0F10, true, Zen3, HostCounters::AmdCore),
            // A Zen whose hypervisor hides the extension.
            (0x0083_0F10, false, Zen2, HostCounters::Fam10h),
            // What was never made.
            (0x0000_0663, true, Amd, HostCounters::AmdCore),
            (0x00D0_0F00, true, Amd, HostCounters::AmdCore),
        ] {
            assert_eq!(amd(signature, core_extension, false), (family, counters), "{signature:#x}");
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
            assert_eq!(amd(signature, true, true), (family, HostCounters::AmdV2), "{signature:#x}");
        }
    }

    #[test]
    fn a_processor_of_each_family() {
        for family in HostFamily::ALL {
            let host = family.processor();
            assert_eq!(host.family, family);
            assert_eq!(host.counters == HostCounters::None, family == HostFamily::Other);
        }
    }

    #[test]
    fn intel_by_version() {
        let intel = |version| {
            let host = host(b"GenuineIntel", &[(1, [0x0005_06E3, 0, 0, 0]), (0xA, [version, 0, 0, 0])]);
            (host.family, host.counters)
        };
        assert_eq!(intel(0x0728_0202), (HostFamily::Intel, HostCounters::Intel(2)));
        assert_eq!(intel(0x0730_0404), (HostFamily::Intel, HostCounters::Intel(4)));
        assert_eq!(intel(0x0830_0806), (HostFamily::Intel, HostCounters::Intel(5)));
        // No PMU: a virtual machine, or a P4.
        assert_eq!(intel(0), (HostFamily::Other, HostCounters::None));
        let host = host(b"GenuineIntel", &[(1, [0xF29, 0, 0, 0]), (2, [0; 4])]);
        assert_eq!((host.family, host.counters), (HostFamily::Other, HostCounters::None));
    }

    #[test]
    fn others_have_none_that_are_known() {
        let host = host(b"CentaurHauls", &[(1, [0; 4]), (0xA, [0x0730_0202, 0, 0, 0])]);
        assert_eq!((host.family, host.counters), (HostFamily::Other, HostCounters::None));
    }
}
