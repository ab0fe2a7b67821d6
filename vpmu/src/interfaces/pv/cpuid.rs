//! How a guest driver finds the paravirtual interface.

use perfctr_abi::pv;

use crate::config::PmuConfig;

/// One CPUID leaf; its sub-leaves are all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuidLeaf {
    /// EAX on input.
    pub leaf: u32,
    /// Output.
    pub eax: u32,
    /// Output.
    pub ebx: u32,
    /// Output.
    pub ecx: u32,
    /// Output.
    pub edx: u32,
}

/// The CPUID leaves by which a guest driver finds the interface, see [`perfctr_abi::pv`].
pub fn pv_cpuid(config: &PmuConfig) -> [CpuidLeaf; 3] {
    let facts = config.model.facts();
    // Those that this host has something to count with.
    let fixed = config.model.cpuid(config.host).architectural.map_or(0, |[_, _, _, edx]| edx & 0x1F);
    let window = if config.pmu_registers && config.rdpmc_faults { pv::COUNTERS_RDPMC_WINDOW } else { 0 };
    let [ebx, ecx, edx] = [0, 4, 8].map(|at| {
        let text = pv::SIGNATURE;
        u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]])
    });
    [
        CpuidLeaf { leaf: pv::LEAF_SIGNATURE, eax: pv::LEAF_COUNTERS, ebx, ecx, edx },
        CpuidLeaf {
            leaf: pv::LEAF_INTERFACE,
            eax: pv::VERSION,
            ebx: pv::MSR_BASE,
            ecx: facts.cpu_type,
            edx: facts.features,
        },
        CpuidLeaf {
            leaf: pv::LEAF_COUNTERS,
            eax: facts.counters | fixed << 8,
            ebx: facts.width,
            ecx: config.core_khz,
            edx: FLAGS | window,
        },
    ]
}

/// Parts of the interface that every version of it has had.
const FLAGS: u32 = pv::COUNTERS_CONTROL | pv::COUNTERS_VECTOR | pv::COUNTERS_ATTENTION;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn a_k8_on_2_ghz() {
        let config = PmuConfig {
            model: Model::K8,
            host: crate::HostFamily::K8.processor(),
            core_khz: 2_000_000,
            pmu_registers: true,
            rdpmc_faults: true,
        };
        let [signature, interface, counters] = pv_cpuid(&config);
        let text = [signature.ebx, signature.ecx, signature.edx].map(u32::to_le_bytes).concat();
        assert_eq!(text, b"perfvisorPMU");
        assert_eq!((signature.leaf, signature.eax), (0x4000_0100, 0x4000_0102));
        assert_eq!(interface, CpuidLeaf { leaf: 0x4000_0101, eax: 2, ebx: pv::MSR_BASE, ecx: 13, edx: 6 });
        assert_eq!(counters, CpuidLeaf { leaf: 0x4000_0102, eax: 4, ebx: 48, ecx: 2_000_000, edx: 15 });
    }
}
