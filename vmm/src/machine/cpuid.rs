//! The processor shown to the guest: what KVM supports, less every PMU that is not ours, plus that of the guest's model
//! and the paravirtual interface; or with KVM's own PMU as it is.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};
use kvm_ioctls::{Cap, Kvm};
use vpmu::{CpuidLeaf, Host, PmuConfig, PmuCpuid, Registers, pv_cpuid};

use super::config::GuestPmu;
use super::error::Error;
use super::identity;

/// Leaf 1 ECX: DTES64, CPL-qualified debug store; IA32_PERF_CAPABILITIES.
const DEBUG_STORE_ECX: u32 = 1 << 2 | 1 << 4;
const PDCM: u32 = 1 << 15;
const X2APIC: u32 = 1 << 21;
const TSC_DEADLINE: u32 = 1 << 24;
const HYPERVISOR: u32 = 1 << 31;
/// Leaf 1 EDX: debug store, into which PEBS would write.
const DEBUG_STORE: u32 = 1 << 21;
/// Leaf 1 EDX: the logical processor count in EBX is valid.
const HTT: u32 = 1 << 28;
/// Leaf 8000_0001 ECX: PerfCtrExtCore, PerfCtrExtNB, PerfTsc, PerfCtrExtLLC.
const AMD_PERFCTR: u32 = 1 << 23 | 1 << 24 | 1 << 27 | 1 << 28;
/// Leaf 8000_0001 ECX: CmpLegacy, TopologyExtensions.
const AMD_CMP_LEGACY: u32 = 1 << 1;
/// The features of KVM's paravirtual interface.
const KVM_FEATURES: u32 = 0x4000_0001;
/// KVM's first clock interface.
const KVM_CLOCKSOURCE: u32 = 1;

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

/// The PMU that the leaves show.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown<'a> {
    None,
    /// The engine's, on this host.
    Virtual(&'a PmuConfig, &'a Host),
    /// What KVM says of its own.
    Kvm,
}

impl<'a> Shown<'a> {
    pub(crate) fn of(pmu: &'a GuestPmu, host: &'a Host) -> Self {
        match pmu {
            GuestPmu::None => Self::None,
            GuestPmu::Virtual(config) => Self::Virtual(config, host),
            GuestPmu::Kvm(_) => Self::Kvm,
        }
    }
}

/// The leaves for vCPU `index` of `vcpus`.
pub(crate) fn for_vcpu(supported: &CpuId, index: u8, vcpus: u8, pmu: Shown<'_>) -> Result<CpuId, Error> {
    let id = u32::from(index);
    let count = u32::from(vcpus);
    let kvms = matches!(pmu, Shown::Kvm);
    let (perfmon, perfctr) = if kvms { (DEBUG_STORE_ECX, 0) } else { (DEBUG_STORE_ECX | PDCM, AMD_PERFCTR) };
    let mut entries: Vec<kvm_cpuid_entry2> = supported
        .as_slice()
        .iter()
        // Leaf 0xA and 8000_0022 describe PMUs of KVM's, 0xB and 0x1F the host's topology.
        .filter(|e| match e.function {
            0xB | 0x1F => false,
            0xA | 0x8000_0022 => kvms,
            _ => true,
        })
        .copied()
        .collect();
    for entry in &mut entries {
        match entry.function {
            1 => {
                entry.ebx = (entry.ebx & 0x0000_FFFF) | id << 24 | count << 16;
                entry.ecx = (entry.ecx & !perfmon) | X2APIC | HYPERVISOR;
                entry.edx &= !DEBUG_STORE;
                entry.edx = if count > 1 { entry.edx | HTT } else { entry.edx & !HTT };
            }
            // Deterministic cache parameters (Intel 4, AMD 8000_001D): every core has its own, so that the
            // guest draws no conclusion about sharing.
            4 => entry.eax = (entry.eax & !0xFC00_0000 & !0x03FF_C000) | (count - 1).min(63) << 26,
            0x8000_001D => entry.eax &= !0x03FF_C000,
            0x8000_0001 => {
                entry.ecx &= !perfctr;
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
    add_topology(&mut entries, id, count);
    if let Shown::Virtual(config, host) = pmu {
        add_pmu(&mut entries, config, host);
    }
    raise_last(&mut entries, 0, 0xB);
    CpuId::from_entries(&entries).map_err(|_| Error::TooManyCpuidLeaves(entries.len()))
}

fn add_topology(entries: &mut Vec<kvm_cpuid_entry2>, id: u32, count: u32) {
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
}

/// The guest's model: how it calls itself, what announces its registers if they work, and the paravirtual interface.
fn add_pmu(entries: &mut Vec<kvm_cpuid_entry2>, config: &PmuConfig, host: &Host) {
    let facts = config.model.facts();
    if let Some(identity) = config.model.identity(host) {
        identity::show(entries, &identity, facts.name);
    }
    if config.pmu_registers {
        announce_registers(entries, config.model.cpuid(*host), &facts.registers);
    }
    for CpuidLeaf { leaf: function, eax, ebx, ecx, edx } in pv_cpuid(config) {
        entries.push(kvm_cpuid_entry2 { function, eax, ebx, ecx, edx, ..Default::default() });
    }
}

fn announce_registers(entries: &mut Vec<kvm_cpuid_entry2>, pmu: PmuCpuid, registers: &Registers) {
    let capabilities = matches!(registers, Registers::P6(p6) if p6.capabilities.is_some());
    // KVM's first clock interface has two of P5's registers; its second one has numbers of its own.
    let takes_clock = matches!(registers, Registers::P5(_));
    for entry in &mut *entries {
        match entry.function {
            1 if capabilities => entry.ecx |= PDCM,
            0x8000_0001 => entry.ecx |= pmu.amd_extended_ecx,
            KVM_FEATURES if takes_clock => entry.eax &= !KVM_CLOCKSOURCE,
            _ => {}
        }
    }
    if let Some([eax, ebx, ecx, edx]) = pmu.architectural {
        entries.push(kvm_cpuid_entry2 { function: 0xA, eax, ebx, ecx, edx, ..Default::default() });
    }
    if let Some(ebx) = pmu.perfmon_v2 {
        entries.push(kvm_cpuid_entry2 { function: 0x8000_0022, eax: 1, ebx, ..Default::default() });
        raise_last(entries, 0x8000_0000, 0x8000_0022);
    }
}

/// Have leaf `first` say that leaves up to `last` exist at least.
fn raise_last(entries: &mut [kvm_cpuid_entry2], first: u32, last: u32) {
    for entry in entries.iter_mut().filter(|e| e.function == first) {
        entry.eax = entry.eax.max(last);
    }
}

/// Bits of the APIC id that number the cores.
fn id_bits(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vpmu::{HostCounters, HostFamily, Model};

    const LAB: Host = Host { family: HostFamily::Zen, counters: HostCounters::AmdV2 };

    /// A host with every feature there is.
    fn host() -> CpuId {
        let leaf = |function: u32| kvm_cpuid_entry2 {
            function,
            eax: if function & 0x7FFF_FFFF == 0 { function } else { u32::MAX },
            ebx: u32::MAX,
            ecx: u32::MAX,
            edx: u32::MAX,
            ..Default::default()
        };
        let basic = [0, 1, 0xA, 0xB, KVM_FEATURES];
        let extended = [0x8000_0000, 0x8000_0001, 0x8000_0008, 0x8000_0022];
        CpuId::from_entries(&[&basic[..], &extended].concat().into_iter().map(leaf).collect::<Vec<_>>())
            .unwrap()
    }

    fn leaf(cpuid: &CpuId, function: u32) -> Option<kvm_cpuid_entry2> {
        let mut all = cpuid.as_slice().iter().filter(|e| e.function == function);
        let first = all.next().copied();
        assert!(function == 0xB || all.next().is_none(), "{function:#x} twice");
        first
    }

    fn with(model: Model, pmu_registers: bool) -> CpuId {
        let config = PmuConfig { model, host: LAB, core_khz: 1, pmu_registers, rdpmc_faults: true };
        for_vcpu(&host(), 0, 1, Shown::Virtual(&config, &LAB)).unwrap()
    }

    fn assert_no_registers(cpuid: &CpuId) {
        assert!(leaf(cpuid, 0xA).is_none());
        assert!(leaf(cpuid, 0x8000_0022).is_none());
        assert_eq!(leaf(cpuid, 0x8000_0001).unwrap().ecx & AMD_PERFCTR, 0);
        let one = leaf(cpuid, 1).unwrap();
        assert_eq!((one.ecx & (PDCM | DEBUG_STORE_ECX), one.edx & DEBUG_STORE), (0, 0));
    }

    #[test]
    fn no_pmu_but_ours_is_shown() {
        assert_no_registers(&for_vcpu(&host(), 0, 1, Shown::None).unwrap());
        for model in Model::ALL {
            let cpuid = with(model, false);
            assert_no_registers(&cpuid);
            let pv = leaf(&cpuid, 0x4000_0101).unwrap();
            assert_eq!(pv.ecx, model.facts().cpu_type, "{model}");
            assert_eq!(leaf(&cpuid, KVM_FEATURES).unwrap().eax & KVM_CLOCKSOURCE, KVM_CLOCKSOURCE);
        }
    }

    #[test]
    fn each_model_is_announced_by_its_own_leaves() {
        for model in [Model::PentiumM, Model::P4, Model::C3, Model::K7, Model::Fam10h] {
            assert_no_registers(&with(model, true));
        }
        let cpuid = with(Model::IntelV4, true);
        let ten = leaf(&cpuid, 0xA).unwrap();
        // What this host cannot count is left out.
        assert_eq!([ten.eax, ten.ebx, ten.ecx, ten.edx], [0x0730_0404, 0b1_1100, 0, 0x602]);
        assert!(leaf(&cpuid, 0).unwrap().eax >= 0xA);
        assert_eq!(leaf(&cpuid, 1).unwrap().ecx & PDCM, PDCM);
        assert_eq!(leaf(&cpuid, 0x8000_0001).unwrap().ecx & AMD_PERFCTR, 0);
        assert_eq!(leaf(&with(Model::IntelV1, true), 1).unwrap().ecx & PDCM, 0);

        let cpuid = with(Model::AmdCore, true);
        assert_eq!(leaf(&cpuid, 0x8000_0001).unwrap().ecx & AMD_PERFCTR, 1 << 23);
        assert!(leaf(&cpuid, 0x8000_0022).is_none());

        let cpuid = with(Model::AmdV2, true);
        assert_eq!(leaf(&cpuid, 0x8000_0000).unwrap().eax, 0x8000_0022);
        let v2 = leaf(&cpuid, 0x8000_0022).unwrap();
        assert_eq!((v2.eax, v2.ebx, v2.ecx, v2.edx), (1, 6, 0, 0));
        assert_eq!(leaf(&cpuid, 1).unwrap().eax, u32::MAX, "the host is one of these itself");
    }

    #[test]
    fn kvms_own_is_shown_as_kvm_describes_it() {
        let cpuid = for_vcpu(&host(), 0, 1, Shown::Kvm).unwrap();
        for function in [0xA, 0x8000_0022] {
            assert_eq!(leaf(&cpuid, function).unwrap().eax, u32::MAX, "{function:#x}");
        }
        assert_eq!(leaf(&cpuid, 0x8000_0001).unwrap().ecx & AMD_PERFCTR, AMD_PERFCTR);
        let one = leaf(&cpuid, 1).unwrap();
        assert_eq!((one.ecx & (PDCM | DEBUG_STORE_ECX), one.edx & DEBUG_STORE), (PDCM, 0));
        assert!(leaf(&cpuid, 0x4000_0100).is_none(), "and no paravirtual interface");
    }

    #[test]
    fn p5_registers_take_the_place_of_kvms_first_clock() {
        let eax = leaf(&with(Model::P5, true), KVM_FEATURES).unwrap().eax;
        assert_eq!(eax, !KVM_CLOCKSOURCE, "the second one stays");
    }

    #[test]
    fn topology_names_each_vcpu() {
        for (index, vcpus, bits) in [(0, 1, 0), (1, 2, 1), (4, 5, 3), (254, 255, 8)] {
            let cpuid = for_vcpu(&host(), index, vcpus, Shown::None).unwrap();
            let one = leaf(&cpuid, 1).unwrap();
            assert_eq!((one.ebx >> 24, one.ebx >> 16 & 0xFF), (u32::from(index), u32::from(vcpus)));
            let core = cpuid.as_slice().iter().find(|e| e.function == 0xB && e.index == 1).unwrap();
            assert_eq!((core.eax, core.ebx, core.edx), (bits, u32::from(vcpus), u32::from(index)));
            assert_eq!(leaf(&cpuid, 0x8000_0008).unwrap().ecx >> 12 & 0xF, bits);
        }
    }
}
