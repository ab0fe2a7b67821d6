//! What a vCPU's PMU shows of itself.

use serde::{Deserialize, Serialize};

use crate::family::Model;
use crate::msr::{RegisterCounter, RegisterCounts};
use crate::select::Select;

/// The state of one vCPU's PMU at one moment. Totals include the period that is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The guest's PMU.
    pub model: Model,
    /// Its name in words.
    pub model_name: String,
    /// `cpu_type` as the guest sees it.
    pub cpu_type: u32,
    /// Number of counters the guest has.
    pub counters: u32,
    /// Their width in bits.
    pub width: u32,
    /// Name of the source of host counts.
    pub source: String,
    /// The state that is attached, if any.
    pub attached: Option<AttachedState>,
    /// TSC cycles attributed to states that sample the TSC.
    pub tsc: u64,
    /// Events attributed, in the order of their first use.
    pub events: Vec<EventTotal>,
    /// Counts of events beyond those `events` has room for.
    pub others: u64,
    /// Counter periods that were not counted: the counter was not loaded, or stopped counting before the end.
    pub lost: u64,
    /// Control register writes.
    pub writes: WriteCounts,
    /// What this cost in hardware, where the source knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareCounts>,
    /// Instructions that the VMM executed in the guest's place while they were counted, and added.
    #[serde(default)]
    pub emulated: u64,
    /// Those that KVM executes in the guest's place (CPUID, HLT and others) are counted too.
    #[serde(default)]
    pub counts_emulated: bool,
    /// Operations at the perfctr door.
    pub door: DoorCounts,
    /// Accesses at the MSR door.
    pub registers: RegisterCounts,
    /// Counters that the guest's registers enable.
    pub enabled: Vec<RegisterCounter>,
    /// Overflows of i-mode counters.
    pub overflows: u64,
    /// Overflow interrupts given to the vCPU's LVTPC.
    pub pmis: u64,
    /// Why the host last refused to load an event.
    pub last_refusal: Option<String>,
}

/// An attached state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedState {
    /// Guest-physical address of its page.
    pub page: u64,
    /// Id of its control.
    pub id: u64,
}

/// What one event select counted on this vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTotal {
    /// What the guest's counter is told to count.
    #[serde(flatten)]
    pub select: Select,
    /// The sum over all states and periods. Two counters of one state with this event count twice.
    pub total: u64,
    /// Whether a host counter is loaded with it and counts, now.
    pub loaded: bool,
}

/// Control register writes: one each time a counter is resumed, on a machine without caching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCounts {
    /// The event had to be loaded.
    pub made: u64,
    /// The event was found loaded.
    pub avoided: u64,
    /// An alarm for an overflow had to be set.
    pub alarms_set: u64,
    /// The alarm was found set early enough.
    pub alarms_kept: u64,
}

/// What the host's kernel did to the processor's counters for one vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareCounts {
    /// Times the vCPU's thread began to run on a processor.
    pub switches: u64,
    /// Registers written when it began or ended to.
    pub switch_writes: u64,
    /// Registers written when counters were loaded and alarms set.
    pub control_writes: u64,
    /// Event selects that were found right when it began to.
    pub avoided: u64,
    /// Overflow interrupts.
    pub interrupts: u64,
    /// Signals sent to the thread.
    pub kicks: u64,
}

/// Doorbell writes, by operation and by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorCounts {
    /// UPDATE_CONTROL.
    pub update_control: u64,
    /// SUSPEND.
    pub suspend: u64,
    /// RESUME.
    pub resume: u64,
    /// SWITCH.
    pub switch: u64,
    /// SAMPLE.
    pub sample: u64,
    /// CONTROL.
    #[serde(default)]
    pub control: u64,
    /// Numbers that are no operation.
    pub unknown: u64,
    /// Results EAGAIN.
    pub retries: u64,
    /// Results that are neither 0 nor EAGAIN.
    pub errors: u64,
}
