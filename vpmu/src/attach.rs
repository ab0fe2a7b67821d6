//! What is attached: how the periods of states begin and end.

use vm_memory::GuestMemory;
use vm_memory::bitmap::BitmapSlice;

use crate::control::Control;
use crate::door::DoorError;
use crate::guest_page::StatePage;
use crate::host::HostPmu;
use crate::period::Ended;
use crate::placement::Placement;
use crate::virtual_pmu::VirtualPmu;

impl<H: HostPmu> VirtualPmu<H> {
    /// End the running period, if there is one.
    pub(crate) fn end_period<M: GuestMemory + ?Sized>(&mut self, mem: &M) -> Ended {
        if !self.period.is_running() {
            return Ended::default();
        }
        let page = StatePage::new(mem, self.period.page);
        let ended = self.period.end(&mut self.slots, &mut self.totals, page.as_ref(), self.cpu);
        self.lost += u64::from(ended.lost.count_ones());
        self.overflows += u64::from(ended.overflow.count_ones());
        self.untold.lost |= ended.lost;
        self.untold.overflow |= ended.overflow;
        ended
    }

    /// Begin a period of the state at `address` with control `id`; gives the counters that do not count.
    pub(crate) fn attach(
        &mut self,
        address: u64,
        id: u64,
        page: &StatePage<'_, impl BitmapSlice>,
    ) -> Result<u32, DoorError> {
        if let Some(placement) = self.placements.get(id)
            && placement.is_current(self.slots.epoch())
        {
            self.slots.touch(placement.slots().iter().copied().flatten());
            let width = self.config.model.facts().width;
            let unread = self.period.begin(address, placement, width, &mut self.slots, page);
            if unread == 0 {
                return Ok(0);
            }
            // Some counter has stopped while nobody looked: begin again with what can be had now.
        }
        self.place(id)?;
        let placement = self.placements.get(id).ok_or(DoorError::Again)?;
        Ok(self.period.begin(address, placement, self.config.model.facts().width, &mut self.slots, page))
    }

    /// Have what `id` means at hand, as long as no other control takes its place.
    pub(crate) fn know(&mut self, id: u64, control: &Control) -> Result<(), DoorError> {
        if self.placements.get(id).is_some() {
            return Ok(());
        }
        let (config, totals) = (self.config, &mut self.totals);
        let event = |select| config.model.host_event(select, config.host);
        let placement = Placement::new(id, control, event, |select, event| totals.row(select, event));
        self.placements.insert(placement.ok_or(DoorError::Again)?);
        Ok(())
    }

    /// The same, if it is only an id that the guest has named.
    fn find(&mut self, id: u64) -> Result<(), DoorError> {
        if self.placements.get(id).is_none() {
            let control = self.table.get(id).ok_or(DoorError::Again)?;
            self.know(id, &control)?;
        }
        Ok(())
    }

    /// The way off the hot path: find the control, find or load its events. No state may be attached, for its counters
    /// may have to make room.
    fn place(&mut self, id: u64) -> Result<(), DoorError> {
        self.find(id)?;
        let keep = self.registers.slots();
        let placement = self.placements.get_mut(id).ok_or(DoorError::Again)?;
        let (events, places) = placement.parts();
        if let Err(error) = self.slots.place(events, places, keep) {
            self.last_refusal = Some(error);
        }
        placement.settle(self.slots.epoch());
        Ok(())
    }

    /// The attached state goes on with the control that its guest has named for the case of an overflow, if it has. Gives
    /// the counters that have overflowed, or none.
    pub(crate) fn stop_overflowed<M: GuestMemory + ?Sized>(&mut self, mem: &M) -> u32 {
        let (address, id) = (self.period.page, self.period.stop_id);
        if id == 0 || self.find(id).is_err() {
            return 0;
        }
        let Some(page) = StatePage::new(mem, address) else { return 0 };
        let sequence = page.change();
        self.end_period(mem);
        // It was just found. Counters that it cannot have are lost, which the guest is told at the period's end.
        let _ = self.attach(address, id, &page);
        page.changed(sequence);
        self.untold.overflow
    }
}
