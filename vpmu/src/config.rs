//! What a VM's PMUs have in common, and how its guest is told of them.

use std::ops::Range;

use perfctr_abi::door;

use crate::family::Model;
use crate::host_family::Host;

/// The door's MSRs, all of which must reach [`VirtualPmu`](crate::VirtualPmu).
pub const DOOR_MSRS: Range<u32> = door::MSR_BASE..door::MSR_BASE + door::MSR_COUNT;

/// Parts of the door that came later and have flags of their own. A VMM without them is an older one to a guest driver,
/// which has another way for each; tests go these ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorParts {
    /// The operation CONTROL.
    pub control: bool,
    /// MSR_VECTOR, and states that stop at their overflows.
    pub vector: bool,
}

impl DoorParts {
    /// What there is but in tests.
    pub const ALL: Self = Self { control: true, vector: true };

    fn flags(self) -> u32 {
        let flag = |there, flag| if there { flag } else { 0 };
        let parts = flag(self.control, door::COUNTERS_CONTROL) | flag(self.vector, door::COUNTERS_VECTOR);
        parts | door::COUNTERS_ATTENTION
    }
}

/// The same for every vCPU of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmuConfig {
    /// The guest's PMU.
    pub model: Model,
    /// The host's processor, whose events count the guest's.
    pub host: Host,
    /// Core frequency that the guest is told, in kHz.
    pub core_khz: u32,
    /// Whether the guest's own PMU registers work (the MSR door), or fault.
    pub msr_door: bool,
    /// Whether RDPMC faults in the guest, so that the guest driver has to stand in for it.
    pub rdpmc_faults: bool,
    /// What the perfctr door has.
    pub door: DoorParts,
}

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

/// The CPUID leaves by which a guest driver finds the door, see [`perfctr_abi::door`].
pub fn door_cpuid(config: &PmuConfig) -> [CpuidLeaf; 3] {
    let facts = config.model.facts();
    // Those that this host has something to count with.
    let fixed = config.model.cpuid(config.host).architectural.map_or(0, |[_, _, _, edx]| edx & 0x1F);
    let window = if config.msr_door && config.rdpmc_faults { door::COUNTERS_RDPMC_WINDOW } else { 0 };
    let [ebx, ecx, edx] = [0, 4, 8].map(|at| {
        let text = door::SIGNATURE;
        u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]])
    });
    [
        CpuidLeaf { leaf: door::LEAF_SIGNATURE, eax: door::LEAF_COUNTERS, ebx, ecx, edx },
        CpuidLeaf {
            leaf: door::LEAF_INTERFACE,
            eax: door::VERSION,
            ebx: door::MSR_BASE,
            ecx: facts.cpu_type,
            edx: facts.features,
        },
        CpuidLeaf {
            leaf: door::LEAF_COUNTERS,
            eax: facts.counters | fixed << 8,
            ebx: facts.width,
            ecx: config.core_khz,
            edx: config.door.flags() | window,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_k8_on_2_ghz() {
        let config = PmuConfig {
            model: Model::K8,
            host: crate::HostFamily::K8.processor(),
            core_khz: 2_000_000,
            msr_door: true,
            rdpmc_faults: true,
            door: DoorParts::ALL,
        };
        let [signature, interface, counters] = door_cpuid(&config);
        let text = [signature.ebx, signature.ecx, signature.edx].map(u32::to_le_bytes).concat();
        assert_eq!(text, b"perfvisorPMU");
        assert_eq!((signature.leaf, signature.eax), (0x4000_0100, 0x4000_0102));
        assert_eq!(interface, CpuidLeaf { leaf: 0x4000_0101, eax: 2, ebx: door::MSR_BASE, ecx: 13, edx: 6 });
        assert_eq!(counters, CpuidLeaf { leaf: 0x4000_0102, eax: 4, ebx: 48, ecx: 2_000_000, edx: 15 });
    }
}
