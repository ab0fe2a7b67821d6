//! The PMU of one vCPU.

use std::sync::Arc;

use perfctr_abi::door::{MSR_BASE, MSR_DOORBELL, MSR_PAGE};
use vm_memory::GuestMemory;
use vm_memory::bitmap::BS;

use crate::config::PmuConfig;
use crate::guest_page::{DoorPage, PAGE_SIZE, StatePage};
use crate::host::{HostPmu, LoadError};
use crate::period::Period;
use crate::placement::PlacementCache;
use crate::slots::Slots;
use crate::snapshot::{AttachedState, DoorCounts, Snapshot};
use crate::table::ControlTable;
use crate::totals::{RowIndex, Totals};

/// What became of an access to an MSR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MsrOutcome {
    /// A write was done.
    Handled,
    /// A read gives this value.
    Value(u64),
    /// The access faults: inject #GP(0).
    GpFault,
    /// The register does not belong to the PMU.
    NotMine,
}

/// The performance counters of one vCPU, owned by the vCPU's thread.
pub struct VirtualPmu<H> {
    pub(crate) config: PmuConfig,
    pub(crate) table: Arc<ControlTable>,
    pub(crate) slots: Slots<H>,
    pub(crate) placements: PlacementCache,
    pub(crate) period: Period,
    pub(crate) totals: Totals,
    pub(crate) lost: u64,
    /// Counters of the attached state that missed something since the guest was last told.
    pub(crate) uncounted: u32,
    pub(crate) counts: DoorCounts,
    pub(crate) last_refusal: Option<LoadError>,
    /// MSR_PAGE as written: page address | 1, or 0.
    page_msr: u64,
}

impl<H: HostPmu> VirtualPmu<H> {
    /// A PMU with nothing attached. All vCPUs of a VM have equal `config`s and share one `table`.
    pub fn new(config: PmuConfig, table: Arc<ControlTable>, host: H) -> Self {
        Self {
            config,
            table,
            slots: Slots::new(host),
            placements: PlacementCache::new(),
            period: Period::none(),
            totals: Totals::new(),
            lost: 0,
            uncounted: 0,
            counts: DoorCounts::default(),
            last_refusal: None,
            page_msr: 0,
        }
    }

    /// The guest reads an MSR.
    pub fn rdmsr(&mut self, msr: u32) -> MsrOutcome {
        match msr.wrapping_sub(MSR_BASE) {
            MSR_PAGE => MsrOutcome::Value(self.page_msr),
            MSR_DOORBELL => MsrOutcome::GpFault,
            _ => MsrOutcome::NotMine,
        }
    }

    /// The guest writes an MSR.
    pub fn wrmsr<M: GuestMemory + ?Sized>(&mut self, msr: u32, value: u64, mem: &M) -> MsrOutcome {
        match msr.wrapping_sub(MSR_BASE) {
            MSR_PAGE => self.write_page_msr(value, mem),
            MSR_DOORBELL => match self.door_page(mem) {
                Some(door) => {
                    self.ring(value, &door, mem);
                    MsrOutcome::Handled
                }
                None => MsrOutcome::GpFault,
            },
            _ => MsrOutcome::NotMine,
        }
    }

    /// Suspend the attached state, if any, so that totals are final. For the end of a VM.
    pub fn stop<M: GuestMemory + ?Sized>(&mut self, mem: &M) {
        self.slots.begin_operation();
        self.end_period(mem);
    }

    /// The vCPU is reset: no page is registered and nothing attached. Guest memory is not written, it belongs to
    /// the next boot. Totals, loaded events and the ids of the VM stay.
    pub fn reset(&mut self) {
        self.slots.begin_operation();
        let uncounted = self.period.end(&mut self.slots, &mut self.totals, None::<&StatePage<'_, ()>>);
        self.lost += u64::from(uncounted.count_ones());
        self.uncounted = 0;
        self.page_msr = 0;
    }

    /// Everything this PMU knows of itself, with the running period included. Nothing changes, in the guest or here,
    /// but like every use of the counters it belongs on the vCPU's thread.
    pub fn snapshot(&mut self) -> Snapshot {
        self.slots.begin_operation();
        let running: Vec<(RowIndex, u64)> = self.period.running(&mut self.slots).collect();
        let running_of = |row| running.iter().filter(|(of, _)| *of == row).map(|(_, count)| count).sum();
        let (events, others) = self.totals.report(running_of, |event| self.slots.counts(event));
        let facts = self.config.model.facts();
        let attached = AttachedState { page: self.period.page, id: self.period.id };
        Snapshot {
            model: self.config.model,
            model_name: facts.name.to_owned(),
            cpu_type: facts.cpu_type,
            counters: facts.counters,
            width: facts.width,
            source: self.slots.host().name().to_owned(),
            attached: self.period.is_running().then_some(attached),
            tsc: self.totals.tsc.wrapping_add(self.period.running_tsc(&mut self.slots)),
            events,
            others,
            lost: self.lost,
            writes: self.slots.writes,
            door: self.counts,
            last_refusal: self.last_refusal.as_ref().map(LoadError::to_string),
        }
    }

    /// The source of host counts.
    pub fn host(&self) -> &H {
        self.slots.host()
    }

    /// The same, to adjust it. Its slots belong to the engine.
    pub fn host_mut(&mut self) -> &mut H {
        self.slots.host_mut()
    }

    /// The page the guest registered, if it did and the memory is still there.
    fn door_page<'a, M: GuestMemory + ?Sized>(&self, mem: &'a M) -> Option<DoorPage<'a, BS<'a, M::Bitmap>>> {
        DoorPage::new(mem, self.page_msr.checked_sub(1)?)
    }

    /// Withdrawing the page ends the running period as SUSPEND does: nobody could end it later. Registering another
    /// page does not, so that a driver may move its page.
    fn write_page_msr<M: GuestMemory + ?Sized>(&mut self, value: u64, mem: &M) -> MsrOutcome {
        if value == 0 {
            self.slots.begin_operation();
            self.end_period(mem);
        } else if value % PAGE_SIZE as u64 != 1 || DoorPage::new(mem, value - 1).is_none() {
            return MsrOutcome::GpFault;
        }
        self.page_msr = value;
        MsrOutcome::Handled
    }
}
