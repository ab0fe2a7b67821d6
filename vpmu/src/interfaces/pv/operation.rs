//! The operations behind the doorbell, see [`perfctr_abi::pv`].

use perfctr_abi::layout::{CpuControl, MAX_COUNTERS};
use perfctr_abi::pv::{op, result};
use vm_memory::GuestMemory;
use vm_memory::bitmap::{BS, BitmapSlice};

use crate::accounting::accounts::Accounts;
use crate::accounting::attachment::{Attachment, UnknownId};
use crate::accounting::interval::Ended;
use crate::accounting::slots::HoldsSlots;
use crate::accounting::state_page::StatePage;
use crate::families::control_data::Control;
use crate::host::pmu::{HostEvent, HostPmu, LoadError};
use crate::interfaces::outcome::MsrOutcome;
use crate::interfaces::pv::error::PvError;
use crate::interfaces::pv::interface::PvInterface;
use crate::interfaces::pv::vcpu_page::VcpuPage;

/// What an operation works on.
pub(crate) struct Doorbell<'a, H, M: ?Sized, O> {
    pub(crate) pv: &'a mut PvInterface,
    pub(crate) accounts: &'a mut Accounts<H>,
    pub(crate) attachment: &'a mut Attachment,
    /// Who else reads slots.
    pub(crate) others: &'a O,
    pub(crate) mem: &'a M,
}

/// The state page at `address`; 0 is none.
fn state_page<M: GuestMemory + ?Sized>(
    mem: &M,
    address: u64,
) -> Result<Option<StatePage<'_, BS<'_, M::Bitmap>>>, PvError> {
    match address {
        0 => Ok(None),
        _ => StatePage::new(mem, address).map(Some).ok_or(PvError::Fault),
    }
}

impl<H: HostPmu, M: GuestMemory + ?Sized, O: HoldsSlots> Doorbell<'_, H, M, O> {
    /// The guest writes `number` to the doorbell: perform that operation on what the page says. Without a page the write
    /// faults.
    #[inline]
    pub(crate) fn dispatch(&mut self, number: u64) -> MsrOutcome {
        let Some(page) = self.pv.page(self.mem) else { return MsrOutcome::GpFault };
        self.accounts.slots_mut().begin_operation();
        let outcome = match number {
            op::UPDATE_CONTROL => self.update_control(&page),
            op::SUSPEND => self.suspend(page.prev(), &page),
            op::RESUME => self.switch(0, &page),
            op::SWITCH => self.switch(page.prev(), &page),
            op::SAMPLE => self.sample(page.prev(), &page),
            op::CONTROL => self.control(&page),
            _ => Err(PvError::NoOperation),
        };
        self.pv.count(number, &outcome);
        page.set_result(outcome.map_or_else(|error| error.result(), |()| result::OK));
        MsrOutcome::Handled
    }

    /// The order of checks: the address, whether it is attached, then those of [`accept`](Self::accept).
    fn update_control(&mut self, page: &VcpuPage<'_, impl BitmapSlice>) -> Result<(), PvError> {
        let next = page.next();
        if next != 0 && next == self.attachment.page() {
            return Err(PvError::Attached);
        }
        let state = state_page(self.mem, next)?;
        self.accept(state.as_ref(), page).map(|_| ())
    }

    /// Check the control, and give it an id, in the vCPU's page and in `state`. The order of checks: the control,
    /// whether the host knows the events, whether they can be loaded here and now. Nothing is kept of a control that
    /// is refused.
    fn accept(
        &mut self,
        state: Option<&StatePage<'_, impl BitmapSlice>>,
        page: &VcpuPage<'_, impl BitmapSlice>,
    ) -> Result<(u64, Control), PvError> {
        let raw: CpuControl = page.control().ok_or(PvError::Fault)?;
        let control = self.accounts.config().model.check(&raw)?;
        self.try_load(&control)?;
        let id = self.attachment.intern(&control);
        if let Some(state) = state {
            state.set_control(control.cstatus(), id, control.pmc_map());
            for i in 0..control.pmc_map().len() {
                if let Some(ireset) = control.ireset(i) {
                    state.set_start(i, ireset as u64);
                }
            }
        }
        page.set_id(id);
        Ok((id, control))
    }

    /// A bad address means that nothing is done. Otherwise everything that is attached is suspended first, so that
    /// nobody's interval is interrupted to load the events.
    fn control(&mut self, page: &VcpuPage<'_, impl BitmapSlice>) -> Result<(), PvError> {
        let next = page.next();
        let state = state_page(self.mem, next)?;
        let suspended = match self.suspend(page.prev(), page) {
            Err(PvError::Fault) => return Err(PvError::Fault),
            suspended => suspended,
        };
        self.forget_third(page);
        let (id, control) = self.accept(state.as_ref(), page)?;
        if let Some(state) = state
            && control.cstatus() != 0
        {
            // The table may have dropped it again since.
            self.attachment.remember(self.accounts, id, &control)?;
            if self.attach(next, id, page.stop_id(), &state)? != 0 {
                self.attachment.abandon();
                return Err(PvError::Busy);
            }
        }
        suspended
    }

    /// Load the events of `control`, so that what cannot count is refused now and not lost later.
    fn try_load(&mut self, control: &Control) -> Result<(), PvError> {
        let mut events = [HostEvent { config: 0, usr: false, os: false }; MAX_COUNTERS];
        for (event, select) in events.iter_mut().zip(control.selects()) {
            let Some(counted) = self.accounts.host_event(select) else {
                self.accounts.refuse(LoadError::Unsupported);
                return Err(PvError::Unsupported);
            };
            *event = counted;
        }
        let events = &events[..control.selects().len()];
        if events.iter().all(|&event| self.accounts.slots_mut().counts(event)) {
            return Ok(());
        }
        // Another state's events may have to make room meanwhile, so its interval is interrupted. The guest does not
        // run between end and beginning: nothing is missed.
        let attached = (self.attachment.page(), self.attachment.id(), self.attachment.stop_id());
        let ended = self.attachment.end(self.accounts, self.mem);
        // It goes on at once, so its driver hears of an overflow by an interrupt only.
        self.pv.owe_interrupt(ended.unreported != 0);
        let outcome = self.accounts.slots_mut().place(events, &mut [None; MAX_COUNTERS], self.others.slots());
        if let (address @ 1.., id, stop_id) = attached
            && let Some(state) = StatePage::new(self.mem, address)
        {
            // Its placement is in the cache since it was resumed, so this cannot fail.
            let _ = self.attach(address, id, stop_id, &state);
        }
        outcome.map_err(|error| {
            let refusal = PvError::from(&error);
            self.accounts.refuse(error);
            refusal
        })
    }

    /// Begin an interval of the state at `address`; gives the counters that do not count.
    fn attach(
        &mut self,
        address: u64,
        id: u64,
        stop_id: u64,
        state: &StatePage<'_, impl BitmapSlice>,
    ) -> Result<u32, UnknownId> {
        let lost = self.attachment.begin(self.accounts, address, id, state, self.others)?;
        self.attachment.set_stop_id(stop_id);
        Ok(lost)
    }

    /// End the interval of `prev` and report what became of its counters. A bad address means that nothing is done.
    fn suspend(&mut self, prev: u64, page: &VcpuPage<'_, impl BitmapSlice>) -> Result<(), PvError> {
        let attached = prev == self.attachment.page();
        if prev != 0 && !attached && StatePage::new(self.mem, prev).is_none() {
            return Err(PvError::Fault);
        }
        // Of another than the one that is attached there is nothing to report; of that one it is still to be reported.
        let mut reported = Ended::default();
        if prev != 0 && attached {
            self.attachment.end(self.accounts, self.mem);
            reported = self.attachment.take_pending();
            page.clear_attention();
        }
        page.set_lost_prev(reported.lost);
        page.set_overflow_prev(reported.overflow);
        if prev == 0 || attached { Ok(()) } else { Err(PvError::NotAttached) }
    }

    /// Also RESUME, which is a switch from nothing. A bad address means that nothing is done. Otherwise `prev` is
    /// suspended and `next` resumed, each whether or not the other could be; an EAGAIN of `next` is the result the
    /// guest has to act on, so it comes first.
    fn switch(&mut self, prev: u64, page: &VcpuPage<'_, impl BitmapSlice>) -> Result<(), PvError> {
        let next = page.next();
        let state = state_page(self.mem, next)?;
        let suspended = match self.suspend(prev, page) {
            Err(PvError::Fault) => return Err(PvError::Fault),
            suspended => suspended,
        };
        let resumed = state.map_or(Ok(0), |state| {
            self.forget_third(page);
            self.attach(next, page.next_id(), page.stop_id(), &state)
        });
        page.set_lost(*resumed.as_ref().unwrap_or(&0));
        resumed?;
        suspended
    }

    fn sample(&mut self, prev: u64, page: &VcpuPage<'_, impl BitmapSlice>) -> Result<(), PvError> {
        let state = state_page(self.mem, prev)?;
        let (id, stop_id) = (self.attachment.id(), self.attachment.stop_id());
        self.suspend(prev, page)?;
        if let Some(state) = state {
            self.attach(prev, id, stop_id, &state)?;
        }
        Ok(())
    }

    /// A third state may be attached, which the guest has forgotten. Nothing is reported of its counters any more.
    fn forget_third(&mut self, page: &VcpuPage<'_, impl BitmapSlice>) {
        if self.attachment.is_running() {
            self.attachment.end(self.accounts, self.mem);
            page.clear_attention();
        }
        self.attachment.forget_pending();
    }
}
