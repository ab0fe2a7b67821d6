//! What a VM's PMUs have in common.

use crate::families::model::Model;
use crate::host::processor::Host;

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
}
