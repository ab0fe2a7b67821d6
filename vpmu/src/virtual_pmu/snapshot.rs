//! What a vCPU's PMU shows of itself.

use serde::{Deserialize, Serialize};

use super::VirtualPmu;
use crate::accounting::attachment::AttachedState;
use crate::accounting::slots::WriteCounts;
use crate::accounting::totals::{EventTotal, RowIndex};
use crate::families::model::Model;
use crate::host::pmu::{HardwareCounts, HostPmu, LoadError};
use crate::interfaces::msr::context::{RegisterCounter, RegisterCounts};
use crate::interfaces::pv::counts::PvCounts;

/// The state of one vCPU's PMU at one moment. Totals include the interval that is running.
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
    /// Counters' intervals that were not counted: the counter was not loaded, or stopped counting before the end.
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
    /// Operations of the paravirtual interface.
    pub pv: PvCounts,
    /// Accesses to the emulated registers.
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

impl<H: HostPmu> VirtualPmu<H> {
    /// Everything this PMU knows of itself, with the running interval included. Nothing changes, in the guest or here,
    /// but like every use of the counters it belongs on the vCPU's thread.
    pub fn snapshot(&mut self) -> Snapshot {
        let slots = self.accounts.slots_mut();
        slots.begin_operation();
        let mut running: Vec<(RowIndex, u64)> = self.attachment.running(slots).collect();
        running.extend(self.registers.running(slots));
        let (tsc, enabled) = (self.attachment.running_tsc(slots), self.registers.enabled(slots));
        let running_of = |row| running.iter().filter(|(of, _)| *of == row).map(|(_, count)| count).sum();
        let (slots, totals) = self.accounts.parts();
        let (events, others) = totals.report(running_of, |event| slots.counts(event));
        let tsc = totals.tsc().wrapping_add(tsc);
        let model = self.accounts.config().model;
        let facts = model.facts();
        Snapshot {
            model,
            model_name: facts.name.to_owned(),
            cpu_type: facts.cpu_type,
            counters: facts.counters,
            width: facts.width,
            source: self.host().name().to_owned(),
            attached: self.attachment.shown(),
            tsc,
            events,
            others,
            lost: self.accounts.lost(),
            writes: self.accounts.slots().writes(),
            hardware: self.host().hardware(),
            emulated: self.emulated,
            counts_emulated: self.host().counts_emulated(),
            pv: self.pv.counts(),
            registers: self.registers.counts(),
            enabled,
            overflows: self.attachment.overflows(),
            pmis: self.pmis,
            last_refusal: self.accounts.last_refusal().map(LoadError::to_string),
        }
    }
}
