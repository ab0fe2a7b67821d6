//! What a VM's PMUs have in common.

use crate::families::model::Model;
use crate::host::processor::Host;

/// Parts of the paravirtual interface that came later and have flags of their own. A VMM without them is an older one
/// to a guest driver, which has another way for each; tests go these ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PvParts {
    /// The operation CONTROL.
    pub control: bool,
    /// MSR_VECTOR, and states that stop at their overflows.
    pub vector: bool,
}

impl PvParts {
    /// What there is but in tests.
    pub const ALL: Self = Self { control: true, vector: true };
}

/// The same for every vCPU of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmuConfig {
    /// The guest's PMU.
    pub model: Model,
    /// The host's processor, whose events count the guest's.
    pub host: Host,
    /// Core frequency that the guest reads, in kHz.
    pub core_khz: u32,
    /// Whether the guest's own PMU registers work (the emulated PMU), or fault.
    pub pmu_registers: bool,
    /// Whether RDPMC faults in the guest, so that the guest driver has to stand in for it.
    pub rdpmc_faults: bool,
    /// What the paravirtual interface has.
    pub pv: PvParts,
}
