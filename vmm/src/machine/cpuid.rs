//! The processor shown to the guest: what KVM supports, less every PMU that is not ours, plus the perfctr door.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::{Cap, Kvm};
use vpmu::CpuidLeaf;

use super::Error;

/// Leaf 1 ECX.
const PDCM: u32 = 1 << 15;
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
/// Leaf 1 EDX: the logical processor count in EBX is valid.
const HTT: u32 = 1 << 28;
/// Leaf 8000_0001 ECX: PerfCtrExtCore, PerfCtrExtNB, PerfTsc, PerfCtrExtLLC.
const AMD_PERFCTR: u32 = 1 << 23 | 1 << 24 | 1 << 27 | 1 << 28;
/// Leaf 8000_0001 ECX: CmpLegacy, TopologyExtensions.
const AMD_CMP_LEGACY: u32 = 1 << 1;

/// What KVM supports; fetched once for a machine.
pub(crate) fn supported(kvm: &Kvm) -> Result<CpuId, Error> {
    let mut cpuid =
        kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(|e| Error::Kvm("GET_SUPPORTED_CPUID", e))?;
    // KVM has this timer always, but reports it here only on recent kernels. Without it Linux calibrates the
    // APIC timer against a PIT, which this machine does not have.
    if kvm.check_extension(Cap::TscDeadlineTimer) {
        for entry in cpuid.as_mut_slice().iter_mut().filter(|e| e.function == 1) {
            entry.ecx |= TSC_DEADLINE;
        }
    }
    Ok(cpuid)
}

/// The leaves for vCPU `index` of `vcpus`, with `door` added.
pub(crate) fn for_vcpu(supported: &CpuId, index: u8, vcpus: u8, door: &[CpuidLeaf]) -> Result<CpuId, Error> {
    let id = u32::from(index);
    let count = u32::from(vcpus);
    let mut entries: Vec<kvm_cpuid_entry2> = supported
        .as_slice()
        .iter()
        // Leaf 0xA and 8000_0022 describe PMUs of KVM's, 0xB and 0x1F the host's topology.
        .filter(|e| !matches!(e.function, 0xA | 0x8000_0022 | 0xB | 0x1F))
        .copied()
        .collect();
    for entry in &mut entries {
        match entry.function {
            1 => {
                entry.ebx = (entry.ebx & 0x0000_FFFF) | id << 24 | count << 16;
                entry.ecx = (entry.ecx & !PDCM) | X2APIC | HYPERVISOR;
                entry.edx = if count > 1 { entry.edx | HTT } else { entry.edx & !HTT };
            }
            // Deterministic cache parameters (Intel 4, AMD 8000_001D): every core has its own, so that the
            // guest draws no conclusion about sharing.
            4 => entry.eax = (entry.eax & !0xFC00_0000 & !0x03FF_C000) | (count - 1).min(63) << 26,
            0x8000_001D => entry.eax &= !0x03FF_C000,
            0x8000_0001 => {
                entry.ecx &= !AMD_PERFCTR;
                entry.ecx = if count > 1 { entry.ecx | AMD_CMP_LEGACY } else { entry.ecx & !AMD_CMP_LEGACY };
            }
            0x8000_0008 => entry.ecx = (entry.ecx & !0xF0FF) | (count - 1) | id_bits(count) << 12,
            0x8000_001E => {
                entry.eax = id;
                entry.ebx = id;
                entry.ecx = 0;
            }
            _ => {}
        }
    }
    // Extended topology: one thread a core, all cores in one package.
    let levels = [(1 << 8, 0, 1), (2 << 8 | 1, id_bits(count), count)];
    for (index, (ecx, shift, logical)) in levels.into_iter().enumerate() {
        entries.push(kvm_cpuid_entry2 {
            function: 0xB,
            index: index as u32,
            flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
            eax: shift,
            ebx: logical,
            ecx,
            edx: id,
            ..Default::default()
        });
    }
    for &CpuidLeaf { leaf: function, eax, ebx, ecx, edx } in door {
        entries.push(kvm_cpuid_entry2 { function, eax, ebx, ecx, edx, ..Default::default() });
    }
    CpuId::from_entries(&entries).map_err(|_| Error::TooManyCpuidLeaves(entries.len()))
}

/// Bits of the APIC id that number the cores.
fn id_bits(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> CpuId {
        let leaf = |function| kvm_cpuid_entry2 {
            function,
            eax: u32::MAX,
            ebx: u32::MAX,
            ecx: u32::MAX,
            edx: u32::MAX,
            ..Default::default()
        };
        CpuId::from_entries(&[1, 0xA, 0xB, 0x8000_0001, 0x8000_0008, 0x8000_0022].map(leaf)).unwrap()
    }

    fn leaf(cpuid: &CpuId, function: u32) -> Option<kvm_cpuid_entry2> {
        cpuid.as_slice().iter().find(|e| e.function == function).copied()
    }

    #[test]
    fn no_pmu_but_ours_is_shown() {
        let cpuid =
            for_vcpu(&host(), 0, 1, &[CpuidLeaf { leaf: 0x4000_0100, eax: 1, ebx: 2, ecx: 3, edx: 4 }])
                .unwrap();
        assert!(leaf(&cpuid, 0xA).is_none());
        assert!(leaf(&cpuid, 0x8000_0022).is_none());
        assert_eq!(leaf(&cpuid, 0x8000_0001).unwrap().ecx & AMD_PERFCTR, 0);
        assert_eq!(leaf(&cpuid, 1).unwrap().ecx & PDCM, 0);
        let door = leaf(&cpuid, 0x4000_0100).unwrap();
        assert_eq!((door.eax, door.ebx, door.ecx, door.edx), (1, 2, 3, 4));
    }

    #[test]
    fn topology_names_each_vcpu() {
        for (index, vcpus, bits) in [(0, 1, 0), (1, 2, 1), (4, 5, 3), (254, 255, 8)] {
            let cpuid = for_vcpu(&host(), index, vcpus, &[]).unwrap();
            let one = leaf(&cpuid, 1).unwrap();
            assert_eq!((one.ebx >> 24, one.ebx >> 16 & 0xFF), (u32::from(index), u32::from(vcpus)));
            let core = cpuid.as_slice().iter().find(|e| e.function == 0xB && e.index == 1).unwrap();
            assert_eq!((core.eax, core.ebx, core.edx), (bits, u32::from(vcpus), u32::from(index)));
            assert_eq!(leaf(&cpuid, 0x8000_0008).unwrap().ecx >> 12 & 0xF, bits);
        }
    }
}
