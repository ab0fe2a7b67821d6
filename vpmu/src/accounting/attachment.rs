//! What is attached: how the intervals of states begin and end.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vm_memory::GuestMemory;
use vm_memory::bitmap::BitmapSlice;

use crate::accounting::accounts::Accounts;
use crate::accounting::control_table::ControlTable;
use crate::accounting::interval::{Ended, Interval};
use crate::accounting::placement::{Placement, PlacementCache};
use crate::accounting::slots::{HoldsSlots, SlotSet, Slots};
use crate::accounting::state_page::StatePage;
use crate::accounting::totals::RowIndex;
use crate::families::control_data::Control;
use crate::host::pmu::HostPmu;

/// An attached state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedState {
    /// Guest-physical address of its page.
    pub page: u64,
    /// Id of its control.
    pub id: u64,
}

/// No control has this id (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownId;

/// The state that is attached to a vCPU, and what is still to be reported of it.
pub(crate) struct Attachment {
    cpu: u32,
    table: Arc<ControlTable>,
    placements: PlacementCache,
    interval: Interval,
    pending: Ended,
    overflows: u64,
}

impl Attachment {
    /// Nothing is attached to vCPU `cpu`.
    pub(crate) fn new(cpu: u32, table: Arc<ControlTable>) -> Self {
        Self {
            cpu,
            table,
            placements: PlacementCache::new(),
            interval: Interval::none(),
            pending: Ended::default(),
            overflows: 0,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.interval.is_running()
    }

    /// Address of the attached state's page; 0: none is attached.
    pub(crate) fn page(&self) -> u64 {
        self.interval.page()
    }

    /// Of its control.
    pub(crate) fn id(&self) -> u64 {
        self.interval.id()
    }

    /// Of the control to go on with after an overflow; 0: the same.
    pub(crate) fn stop_id(&self) -> u64 {
        self.interval.stop_id()
    }

    pub(crate) fn set_stop_id(&mut self, id: u64) {
        self.interval.set_stop_id(id);
    }

    /// The id of `control`, for all vCPUs of the VM.
    pub(crate) fn intern(&self, control: &Control) -> u64 {
        self.table.intern(control)
    }

    /// End the running interval, if there is one.
    pub(crate) fn end<H: HostPmu, M: GuestMemory + ?Sized>(
        &mut self,
        accounts: &mut Accounts<H>,
        mem: &M,
    ) -> Ended {
        if !self.interval.is_running() {
            return Ended::default();
        }
        let page = StatePage::new(mem, self.interval.page());
        let (slots, totals) = accounts.parts();
        let ended = self.interval.end(slots, totals, page.as_ref(), self.cpu);
        accounts.lose(ended.lost.count_ones());
        self.overflows += u64::from(ended.overflow.count_ones());
        self.pending.lost |= ended.lost;
        self.pending.overflow |= ended.overflow;
        ended
    }

    /// End it without a word to the guest, whose memory is the next boot's.
    pub(crate) fn reset<H: HostPmu>(&mut self, accounts: &mut Accounts<H>) {
        let (slots, totals) = accounts.parts();
        let ended = self.interval.end(slots, totals, None::<&StatePage<'_, ()>>, self.cpu);
        accounts.lose(ended.lost.count_ones());
        self.forget_pending();
    }

    /// What is attached was not wanted: it has just begun, and is not counted.
    pub(crate) fn abandon(&mut self) {
        self.interval = Interval::none();
    }

    /// Begin an interval of the state at `address` with control `id`; gives the counters that do not count. Slots of
    /// `others` stay.
    pub(crate) fn begin<H: HostPmu>(
        &mut self,
        accounts: &mut Accounts<H>,
        address: u64,
        id: u64,
        page: &StatePage<'_, impl BitmapSlice>,
        others: &impl HoldsSlots,
    ) -> Result<u32, UnknownId> {
        let width = accounts.config().model.facts().width;
        if let Some(placement) = self.placements.get(id)
            && placement.is_current(accounts.slots().epoch())
        {
            accounts.slots_mut().touch(placement.slots().iter().copied().flatten());
            let unread = self.interval.begin(address, placement, width, accounts.slots_mut(), page);
            if unread == 0 {
                return Ok(0);
            }
            // Some counter has stopped while nobody looked: begin again with what can be had now.
        }
        self.place(accounts, id, others)?;
        let placement = self.placements.get(id).ok_or(UnknownId)?;
        Ok(self.interval.begin(address, placement, width, accounts.slots_mut(), page))
    }

    /// Have what `id` means at hand, as long as no other control takes its place.
    pub(crate) fn remember<H: HostPmu>(
        &mut self,
        accounts: &mut Accounts<H>,
        id: u64,
        control: &Control,
    ) -> Result<(), UnknownId> {
        if self.placements.get(id).is_none() {
            let placement = Placement::new(id, control, |select| accounts.event_and_row(select));
            self.placements.insert(placement.ok_or(UnknownId)?);
        }
        Ok(())
    }

    /// The same, if it is only an id that the guest has named.
    fn find<H: HostPmu>(&mut self, accounts: &mut Accounts<H>, id: u64) -> Result<(), UnknownId> {
        if self.placements.get(id).is_none() {
            let control = self.table.get(id).ok_or(UnknownId)?;
            self.remember(accounts, id, &control)?;
        }
        Ok(())
    }

    /// The way off the hot path: find the control, find or load its events. No state may be attached, for its counters
    /// may have to make room.
    fn place<H: HostPmu>(
        &mut self,
        accounts: &mut Accounts<H>,
        id: u64,
        others: &impl HoldsSlots,
    ) -> Result<(), UnknownId> {
        self.find(accounts, id)?;
        let placement = self.placements.get_mut(id).ok_or(UnknownId)?;
        let (events, places) = placement.parts();
        if let Err(error) = accounts.slots_mut().place(events, places, others.slots()) {
            accounts.refuse(error);
        }
        placement.found_at(accounts.slots().epoch());
        Ok(())
    }

    /// The attached state goes on with the control that its guest has named for the case of an overflow, if it has. Gives
    /// the counters that have overflowed, or none.
    pub(crate) fn stop_overflowed<H: HostPmu, M: GuestMemory + ?Sized>(
        &mut self,
        accounts: &mut Accounts<H>,
        mem: &M,
        others: &impl HoldsSlots,
    ) -> u32 {
        let (address, id) = (self.page(), self.stop_id());
        if id == 0 || self.find(accounts, id).is_err() {
            return 0;
        }
        let Some(page) = StatePage::new(mem, address) else { return 0 };
        let sequence = page.begin_write();
        self.end(accounts, mem);
        // It was just found. Counters that it cannot have are lost, which is reported at the interval's end.
        let _ = self.begin(accounts, address, id, &page, others);
        page.end_write(sequence);
        self.pending.overflow
    }

    /// What no operation has reported yet of the attached state's counters; it is reported now.
    pub(crate) fn take_pending(&mut self) -> Ended {
        std::mem::take(&mut self.pending)
    }

    /// Nothing is reported any more.
    pub(crate) fn forget_pending(&mut self) {
        self.pending = Ended::default();
    }

    /// Whether a counter has overflowed since this was asked last. Each says so once in an interval.
    pub(crate) fn has_overflowed<H: HostPmu>(&mut self, accounts: &mut Accounts<H>) -> bool {
        self.interval.has_overflowed(accounts.slots_mut())
    }

    /// The count of `slot` at which the next of its counters overflows.
    pub(crate) fn deadline(&self, slot: u8) -> Option<u64> {
        self.interval.deadline(slot)
    }

    /// Overflows of i-mode counters so far.
    pub(crate) fn overflows(&self) -> u64 {
        self.overflows
    }

    /// As the dump shows it.
    pub(crate) fn shown(&self) -> Option<AttachedState> {
        self.is_running().then(|| AttachedState { page: self.page(), id: self.id() })
    }

    /// TSC cycles of the running interval so far.
    pub(crate) fn running_tsc<H: HostPmu>(&self, slots: &mut Slots<H>) -> u64 {
        self.interval.running_tsc(slots)
    }

    /// What each counter has counted in the running interval so far.
    pub(crate) fn running<H: HostPmu>(&self, slots: &mut Slots<H>) -> impl Iterator<Item = (RowIndex, u64)> {
        self.interval.running(slots)
    }
}

impl HoldsSlots for Attachment {
    fn slots(&self) -> SlotSet {
        self.interval.slots()
    }
}
