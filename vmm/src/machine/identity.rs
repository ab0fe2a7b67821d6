//! The processor shown to the guest when it is to take it for one of another family than the host's: vendor, family and
//! model, and no leaf or feature that only the host's vendor has.

use kvm_bindings::kvm_cpuid_entry2;
use vpmu::Identity;

const AMD: &[u8; 12] = b"AuthenticAMD";
const INTEL: &[u8; 12] = b"GenuineIntel";

/// Leaf 1 ECX: VMX.
const VMX: u32 = 1 << 5;
/// Leaf 8000_0001, what Intel has of it (SDM volume 2A, CPUID): ECX LAHF, LZCNT, PREFETCHW; EDX SYSCALL, NX, 1 GiB
/// pages, RDTSCP, 64 bits.
const INTEL_EXTENDED_ECX: u32 = 1 << 8 | 1 << 5 | 1;
const INTEL_EXTENDED_EDX: u32 = 1 << 29 | 1 << 27 | 1 << 26 | 1 << 20 | 1 << 11;
/// Features of KVM's leaf 4000_0001 that a guest uses by a hypercall: kicks of halted vCPUs, IPIs, yields. The instruction
/// is VMCALL for Intel and VMMCALL for AMD, and the guest takes that of the vendor it sees. KVM mends the wrong one by
/// rewriting the guest's code, which Linux maps read-only: it dies of a page fault.
const HYPERCALLS: u32 = 1 << 7 | 1 << 11 | 1 << 13;
const KVM_FEATURES: u32 = 0x4000_0001;
/// The last extended leaf of Intel's.
const INTEL_LAST: u32 = 0x8000_0008;

/// Have `entries` say that the processor is `identity`, and calls itself `name`.
pub(super) fn show(entries: &mut Vec<kvm_cpuid_entry2>, identity: &Identity, name: &str) {
    let [ebx, edx, ecx] = [0, 4, 8].map(|at| word(identity.vendor, at));
    let amd = identity.vendor == AMD;
    let host_is_amd = entries.iter().any(|e| e.function == 0 && e.ebx == word(AMD, 0));
    if !amd {
        entries.retain(|e| !(INTEL_LAST + 1..0x9000_0000).contains(&e.function));
    } else if !host_is_amd {
        // Intel's descriptors and deterministic cache parameters; AMD has its own leaves, which Linux can do without.
        entries.retain(|e| !matches!(e.function, 2 | 4));
    }
    let brand = brand(name);
    for entry in entries {
        match entry.function {
            0 => (entry.ebx, entry.edx, entry.ecx) = (ebx, edx, ecx),
            1 => {
                entry.eax = signature(identity);
                if identity.vendor != INTEL {
                    entry.ecx &= !VMX;
                }
            }
            0x8000_0000 if amd => (entry.ebx, entry.edx, entry.ecx) = (ebx, edx, ecx),
            0x8000_0000 => {
                entry.eax = entry.eax.min(INTEL_LAST);
                (entry.ebx, entry.edx, entry.ecx) = (0, 0, 0);
            }
            0x8000_0001 if amd => entry.eax = signature(identity),
            0x8000_0001 => {
                (entry.eax, entry.ebx) = (0, 0);
                entry.ecx &= INTEL_EXTENDED_ECX;
                entry.edx &= INTEL_EXTENDED_EDX;
            }
            0x8000_0002..=0x8000_0004 => {
                let at = 16 * (entry.function - 0x8000_0002) as usize;
                let text = |i: usize| word(&brand, at + 4 * i);
                (entry.eax, entry.ebx, entry.ecx, entry.edx) = (text(0), text(1), text(2), text(3));
            }
            KVM_FEATURES if amd != host_is_amd => entry.eax &= !HYPERCALLS,
            // AMD's first-level caches, and its number of cores.
            0x8000_0005 if !amd => (entry.eax, entry.ebx, entry.ecx, entry.edx) = (0, 0, 0, 0),
            0x8000_0008 if !amd => entry.ecx = 0,
            _ => {}
        }
    }
}

/// Leaf 1 EAX. Family and model beyond four bits are in the extended fields: of the family from 15 on, of the model for
/// families 6 and 15 on.
fn signature(identity: &Identity) -> u32 {
    let [family, model, stepping] = [identity.family, identity.model, identity.stepping].map(u32::from);
    let extended_family = family.saturating_sub(15);
    extended_family << 20 | model >> 4 << 16 | family.min(15) << 8 | (model & 0xF) << 4 | stepping
}

/// 48 characters, the last of them NUL.
fn brand(name: &str) -> [u8; 48] {
    let mut brand = [0; 48];
    for (to, from) in brand[..47].iter_mut().zip("perfvisor virtual ".bytes().chain(name.bytes())) {
        *to = from;
    }
    brand
}

fn word(text: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use vpmu::Model;

    fn shown(host: &[u8; 12], model: Model) -> Vec<kvm_cpuid_entry2> {
        let leaf = |function| {
            let mut entry = kvm_cpuid_entry2 {
                function,
                eax: u32::MAX,
                ebx: u32::MAX,
                ecx: u32::MAX,
                edx: u32::MAX,
                ..Default::default()
            };
            if function & 0x7FFF_FFFF == 0 {
                (entry.ebx, entry.edx, entry.ecx) = (word(host, 0), word(host, 4), word(host, 8));
            }
            entry
        };
        let leaves = [0, 1, 2, 4, 7, 0x8000_0000, 0x8000_0001, 0x8000_0002, 0x8000_0003, 0x8000_0004];
        let more = [0x8000_0005, 0x8000_0008, 0x8000_000A, 0x8000_001D, 0x4000_0000, KVM_FEATURES];
        let mut entries: Vec<_> = leaves.into_iter().chain(more).map(leaf).collect();
        let facts = model.facts();
        show(&mut entries, &facts.identity.unwrap(), facts.name);
        entries
    }

    fn leaf(entries: &[kvm_cpuid_entry2], function: u32) -> Option<[u32; 4]> {
        entries.iter().find(|e| e.function == function).map(|e| [e.eax, e.ebx, e.ecx, e.edx])
    }

    #[test]
    fn a_guest_of_the_other_vendor_makes_no_hypercalls() {
        for (host, model, calls) in [
            (AMD, Model::AmdV2, true),
            (AMD, Model::PentiumM, false),
            (AMD, Model::C3, false),
            (INTEL, Model::IntelV4, true),
            (INTEL, Model::C3, true),
            (INTEL, Model::K8, false),
        ] {
            let features = leaf(&shown(host, model), KVM_FEATURES).unwrap()[0];
            assert_eq!(features, if calls { u32::MAX } else { !HYPERCALLS }, "{model}");
        }
    }

    #[test]
    fn signatures_are_those_of_real_processors() {
        for (model, wanted) in [
            (Model::P5Mmx, 0x543),
            (Model::PentiumIII, 0x686),
            (Model::PentiumM, 0x6D6),
            (Model::P4M2, 0xF21),
            (Model::P4M3, 0xF41),
            (Model::K8, 0xF50),
            (Model::Fam10h, 0x0010_0F23),
            (Model::AmdCore, 0x0083_0F10),
            (Model::AmdV2, 0x00A1_0F11),
            (Model::IntelV4, 0x0007_06F0),
        ] {
            assert_eq!(leaf(&shown(AMD, model), 1).unwrap()[0], wanted, "{model}");
        }
    }

    #[test]
    fn an_intel_processor_on_an_amd_host_has_nothing_of_amds() {
        let entries = shown(AMD, Model::PentiumM);
        assert_eq!(leaf(&entries, 0).unwrap()[1..], [word(INTEL, 0), word(INTEL, 8), word(INTEL, 4)]);
        assert_eq!(leaf(&entries, 0x8000_0000), Some([0x8000_0008, 0, 0, 0]));
        assert_eq!(leaf(&entries, 0x8000_0001), Some([0, 0, 0x121, 0x2C10_0800]));
        assert_eq!((leaf(&entries, 0x8000_000A), leaf(&entries, 0x8000_001D)), (None, None));
        assert!(leaf(&entries, 7).is_some() && leaf(&entries, 0x4000_0000).is_some());
    }

    #[test]
    fn an_amd_processor_on_an_intel_host_has_nothing_of_intels() {
        let entries = shown(INTEL, Model::K8);
        for leaves in [0, 0x8000_0000] {
            assert_eq!(leaf(&entries, leaves).unwrap()[1..], [word(AMD, 0), word(AMD, 8), word(AMD, 4)]);
        }
        assert_eq!((leaf(&entries, 2), leaf(&entries, 4)), (None, None));
        assert_eq!(leaf(&entries, 1).unwrap()[2] & VMX, 0);
        assert_eq!(leaf(&entries, 0x8000_0001).unwrap()[0], 0xF50);
        assert!(leaf(&shown(AMD, Model::K8), 0x8000_001D).is_some(), "AMD's own stay on an AMD host");
    }

    #[test]
    fn it_calls_itself_by_its_name() {
        for model in Model::ALL.into_iter().filter(|model| model.facts().identity.is_some()) {
            let entries = shown(AMD, model);
            let words = [2, 3, 4].map(|leaf_number| leaf(&entries, 0x8000_0000 | leaf_number).unwrap());
            let bytes: Vec<u8> = words.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
            let text = std::str::from_utf8(&bytes).unwrap().trim_end_matches('\0');
            assert_eq!(text, format!("perfvisor virtual {}", model.facts().name));
        }
    }
}
