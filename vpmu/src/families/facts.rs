//! What there is to say of a family of processors: one entry of the table in [`super::model`].

use perfctr_abi::layout::CpuControl;

use crate::families::control_data::{ControlError, SelectLayout};
use crate::families::registers::{Identity, Registers};
use crate::families::select::Select;
use crate::host::family::HostFamily;
use crate::host::pmu::HostEvent;
use crate::host::processor::HostCounters;

/// A guest PMU, whole: what its guest sees, which controls are valid, and what its events are on a host.
pub(crate) struct Family {
    pub(crate) facts: Facts,
    /// The counters of a host that is one of these itself, whose identity is the guest's then.
    pub(crate) native: Option<HostCounters>,
    /// What control data says of one counter, besides `evntsel`.
    pub(crate) layout: SelectLayout,
    /// The rules of control data that are the family's own.
    pub(crate) check: fn(&CpuControl) -> Result<(), ControlError>,
    /// The event of a host that counts what a select says; `None`: the host has none.
    pub(crate) host_event: fn(Select, Target) -> Option<HostEvent>,
}

/// Where a guest's events are to be counted.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    /// The host's events.
    pub(crate) host: HostFamily,
    /// The processor that the guest sees; `None`: the host's own.
    pub(crate) identity: Option<Identity>,
}

/// What a guest knows of its processor's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Name in `--pmu`.
    pub keyword: &'static str,
    /// Name for reading.
    pub name: &'static str,
    /// `cpu_type` of [`perfctr_abi::layout::cpu_type`]; for processors that perfctr never knew, the nearest that its
    /// clients understand.
    pub cpu_type: u32,
    /// Number of programmable counters; fixed ones are in `registers`.
    pub counters: u32,
    /// Their width in bits; 0 without counters.
    pub width: u32,
    /// Bits of [`perfctr_abi::layout::feature`]. No RDPMC: that instruction never reaches the VMM. PCINT: the
    /// processor has overflow interrupts.
    pub features: u32,
    /// How the processor calls itself; `None`: as the host does.
    pub identity: Option<Identity>,
    /// What CPUID says of its counters.
    pub cpuid: PmuCpuid,
    /// The registers of the emulated PMU.
    pub registers: Registers,
    /// Whether delivery of a PMI sets the mask bit of LVTPC (Intel since Pentium M and P4), or leaves it (AMD, and
    /// the P6 before).
    pub lvtpc_masks: bool,
}

/// What CPUID says of a processor's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmuCpuid {
    /// Leaf 0xA: EAX, EBX, ECX, EDX (SDM volume 2A, CPUID).
    pub architectural: Option<[u32; 4]>,
    /// Bits of leaf 8000_0001 ECX (APM volume 3, appendix E).
    pub amd_extended_ecx: u32,
    /// EBX of leaf 8000_0022, whose EAX is 1 then.
    pub perfmon_v2: Option<u32>,
}

impl PmuCpuid {
    /// Nothing.
    pub const NONE: Self = Self { architectural: None, amd_extended_ecx: 0, perfmon_v2: None };
}
