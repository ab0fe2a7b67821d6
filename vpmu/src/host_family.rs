//! Which processor the host is, as far as its events are concerned.

use std::fmt;

/// Families of hosts that share an event encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostFamily {
    /// AMD and Hygon.
    Amd,
    /// Intel with architectural performance monitoring.
    Intel,
    /// Anything else: no event is known.
    Other,
}

impl HostFamily {
    /// The family of a CPUID vendor string (leaf 0: EBX, EDX, ECX).
    pub fn from_vendor(vendor: &[u8; 12]) -> Self {
        match vendor {
            b"AuthenticAMD" | b"HygonGenuine" => Self::Amd,
            b"GenuineIntel" => Self::Intel,
            _ => Self::Other,
        }
    }

    /// The family of the processor this runs on.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        Self::from_vendor(&host_vendor())
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, unused_unsafe, reason = "CPUID is an unsafe intrinsic before Rust 1.94")]
fn host_vendor() -> [u8; 12] {
    // SAFETY: every x86-64 processor has CPUID and its leaf 0.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0) };
    let mut vendor = [0; 12];
    for (text, register) in vendor.chunks_exact_mut(4).zip([leaf.ebx, leaf.edx, leaf.ecx]) {
        text.copy_from_slice(&register.to_le_bytes());
    }
    vendor
}

impl fmt::Display for HostFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Amd => "AMD",
            Self::Intel => "Intel",
            Self::Other => "other",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors() {
        assert_eq!(HostFamily::from_vendor(b"AuthenticAMD"), HostFamily::Amd);
        assert_eq!(HostFamily::from_vendor(b"HygonGenuine"), HostFamily::Amd);
        assert_eq!(HostFamily::from_vendor(b"GenuineIntel"), HostFamily::Intel);
        assert_eq!(HostFamily::from_vendor(b"CentaurHauls"), HostFamily::Other);
    }
}
