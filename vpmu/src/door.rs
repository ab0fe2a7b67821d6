//! The operations of the perfctr door, see [`perfctr_abi::door`].

use perfctr_abi::door::{op, result};
use perfctr_abi::layout::{CpuControl, MAX_COUNTERS};
use vm_memory::GuestMemory;
use vm_memory::bitmap::{BS, BitmapSlice};

use crate::control::{Control, ControlError};
use crate::guest_page::{DoorPage, StatePage};
use crate::host::{HostEvent, HostPmu, LoadError};
use crate::period::{Ended, Period};
use crate::virtual_pmu::VirtualPmu;

/// Why an operation failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DoorError {
    #[error("no such operation")]
    NoOperation,
    #[error("not page-aligned guest memory")]
    Fault,
    #[error("the state is not attached to this vCPU")]
    NotAttached,
    #[error("the state is attached")]
    Attached,
    #[error("no control has this id any more")]
    Again,
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("the host's counters are taken")]
    Busy,
    #[error("the host has no event that counts this")]
    Unsupported,
}

impl DoorError {
    fn result(&self) -> i32 {
        match self {
            Self::NoOperation => result::ENOSYS,
            Self::Fault => result::EFAULT,
            Self::NotAttached => result::ESRCH,
            Self::Attached => result::EINVAL,
            Self::Again => result::EAGAIN,
            Self::Control(error) => error.result(),
            Self::Busy => result::EBUSY,
            Self::Unsupported => result::EOPNOTSUPP,
        }
    }
}

/// The state page at `address`; 0 is none.
fn state_page<M: GuestMemory + ?Sized>(
    mem: &M,
    address: u64,
) -> Result<Option<StatePage<'_, BS<'_, M::Bitmap>>>, DoorError> {
    match address {
        0 => Ok(None),
        _ => StatePage::new(mem, address).map(Some).ok_or(DoorError::Fault),
    }
}

impl<H: HostPmu> VirtualPmu<H> {
    /// The doorbell: perform operation `number` on what the page says.
    pub(crate) fn ring<M: GuestMemory + ?Sized>(
        &mut self,
        number: u64,
        door: &DoorPage<'_, impl BitmapSlice>,
        mem: &M,
    ) {
        self.slots.begin_operation();
        let outcome = match number {
            op::UPDATE_CONTROL => {
                self.counts.update_control += 1;
                self.update_control(door, mem)
            }
            op::SUSPEND => {
                self.counts.suspend += 1;
                self.suspend(door.prev(), door, mem)
            }
            op::RESUME => {
                self.counts.resume += 1;
                self.switch(0, door, mem)
            }
            op::SWITCH => {
                self.counts.switch += 1;
                self.switch(door.prev(), door, mem)
            }
            op::SAMPLE => {
                self.counts.sample += 1;
                self.sample(door.prev(), door, mem)
            }
            op::CONTROL if self.config.door.control => {
                self.counts.control += 1;
                self.control(door, mem)
            }
            _ => {
                self.counts.unknown += 1;
                Err(DoorError::NoOperation)
            }
        };
        match &outcome {
            Ok(()) => {}
            Err(DoorError::Again) => self.counts.retries += 1,
            Err(_) => self.counts.errors += 1,
        }
        door.set_result(outcome.map_or_else(|error| error.result(), |()| result::OK));
    }

    /// The order of checks: the address, whether it is attached, then those of [`accept`](Self::accept).
    fn update_control<M: GuestMemory + ?Sized>(
        &mut self,
        door: &DoorPage<'_, impl BitmapSlice>,
        mem: &M,
    ) -> Result<(), DoorError> {
        let next = door.next();
        if next != 0 && next == self.period.page {
            return Err(DoorError::Attached);
        }
        let page = state_page(mem, next)?;
        self.accept(page.as_ref(), door, mem).map(|_| ())
    }

    /// Check the control, and give it an id, in the page at the door and in `page`. The order of checks: the control,
    /// whether the host knows the events, whether they can be loaded here and now. Nothing is kept of a control that
    /// is refused.
    fn accept<M: GuestMemory + ?Sized>(
        &mut self,
        page: Option<&StatePage<'_, impl BitmapSlice>>,
        door: &DoorPage<'_, impl BitmapSlice>,
        mem: &M,
    ) -> Result<(u64, Control), DoorError> {
        let raw: CpuControl = door.control().ok_or(DoorError::Fault)?;
        let control = self.config.model.check(&raw)?;
        self.try_load(&control, mem)?;
        let id = self.table.intern(&control);
        if let Some(page) = page {
            page.set_control(control.cstatus(), id, control.pmc_map());
            for i in 0..control.pmc_map().len() {
                if let Some(ireset) = control.ireset(i) {
                    page.set_start(i, ireset as u64);
                }
            }
        }
        door.set_id(id);
        Ok((id, control))
    }

    /// A bad address means that nothing is done. Otherwise everything that is attached is suspended first, so that
    /// nobody's period is interrupted to load the events.
    fn control<M: GuestMemory + ?Sized>(
        &mut self,
        door: &DoorPage<'_, impl BitmapSlice>,
        mem: &M,
    ) -> Result<(), DoorError> {
        let next = door.next();
        let page = state_page(mem, next)?;
        let suspended = match self.suspend(door.prev(), door, mem) {
            Err(DoorError::Fault) => return Err(DoorError::Fault),
            suspended => suspended,
        };
        self.forget_third(door, mem);
        let (id, control) = self.accept(page.as_ref(), door, mem)?;
        if let Some(page) = page
            && control.cstatus() != 0
        {
            // The table may have dropped it again since.
            self.know(id, &control)?;
            if self.attach(next, id, &page)? != 0 {
                self.period = Period::none();
                return Err(DoorError::Busy);
            }
            self.period.stop_id = door.stop_id();
        }
        suspended
    }

    /// Load the events of `control`, so that what cannot count is refused now and not lost later.
    fn try_load<M: GuestMemory + ?Sized>(&mut self, control: &Control, mem: &M) -> Result<(), DoorError> {
        let mut events = [HostEvent { config: 0, usr: false, os: false }; MAX_COUNTERS];
        for (event, select) in events.iter_mut().zip(control.selects()) {
            let Some(counted) = self.config.model.host_event(select, self.config.host) else {
                self.last_refusal = Some(LoadError::Unsupported);
                return Err(DoorError::Unsupported);
            };
            *event = counted;
        }
        let events = &events[..control.selects().len()];
        if events.iter().all(|&event| self.slots.counts(event)) {
            return Ok(());
        }
        // Another state's events may have to make room meanwhile, so its period is interrupted. The guest does not
        // run between end and beginning: nothing is missed.
        let (attached, id, stop_id) = (self.period.page, self.period.id, self.period.stop_id);
        let ended = self.end_period(mem);
        // It goes on at once, so its driver hears of an overflow by an interrupt only.
        self.pmi |= ended.silent != 0;
        let outcome = self.slots.place(events, &mut [None; MAX_COUNTERS], self.registers.slots());
        if attached != 0
            && let Some(page) = StatePage::new(mem, attached)
        {
            // Its placement is in the cache since it was resumed, so this cannot fail.
            let _ = self.attach(attached, id, &page);
            self.period.stop_id = stop_id;
        }
        outcome.map_err(|error| {
            let refusal = match error {
                LoadError::Busy => DoorError::Busy,
                LoadError::Unsupported | LoadError::Os(_) => DoorError::Unsupported,
            };
            self.last_refusal = Some(error);
            refusal
        })
    }

    /// End the period of `prev` and tell what became of its counters. A bad address means that nothing is done.
    fn suspend<M: GuestMemory + ?Sized>(
        &mut self,
        prev: u64,
        door: &DoorPage<'_, impl BitmapSlice>,
        mem: &M,
    ) -> Result<(), DoorError> {
        let attached = prev == self.period.page;
        if prev != 0 && !attached && StatePage::new(mem, prev).is_none() {
            return Err(DoorError::Fault);
        }
        // Of another than the one that is attached there is nothing to tell; of that one it is still to be told.
        let mut told = Ended::default();
        if prev != 0 && attached {
            self.end_period(mem);
            told = std::mem::take(&mut self.untold);
            door.clear_attention();
        }
        door.set_lost_prev(told.lost);
        door.set_overflow_prev(told.overflow);
        if prev == 0 || attached { Ok(()) } else { Err(DoorError::NotAttached) }
    }

    /// Also RESUME, which is a switch from nothing. A bad address means that nothing is done. Otherwise `prev` is
    /// suspended and `next` resumed, each whether or not the other could be; an EAGAIN of `next` is the result the
    /// guest has to act on, so it comes first.
    fn switch<M: GuestMemory + ?Sized>(
        &mut self,
        prev: u64,
        door: &DoorPage<'_, impl BitmapSlice>,
        mem: &M,
    ) -> Result<(), DoorError> {
        let next = door.next();
        let page = state_page(mem, next)?;
        let suspended = match self.suspend(prev, door, mem) {
            Err(DoorError::Fault) => return Err(DoorError::Fault),
            suspended => suspended,
        };
        let resumed = page.map_or(Ok(0), |page| {
            self.forget_third(door, mem);
            let lost = self.attach(next, door.next_id(), &page)?;
            self.period.stop_id = door.stop_id();
            Ok(lost)
        });
        door.set_lost(*resumed.as_ref().unwrap_or(&0));
        resumed.and(suspended)
    }

    fn sample<M: GuestMemory + ?Sized>(
        &mut self,
        prev: u64,
        door: &DoorPage<'_, impl BitmapSlice>,
        mem: &M,
    ) -> Result<(), DoorError> {
        let page = state_page(mem, prev)?;
        let (id, stop_id) = (self.period.id, self.period.stop_id);
        self.suspend(prev, door, mem)?;
        if let Some(page) = page {
            self.attach(prev, id, &page)?;
            self.period.stop_id = stop_id;
        }
        Ok(())
    }

    /// A third state may be attached, which the guest has forgotten. Of its counters nobody is told any more.
    fn forget_third<M: GuestMemory + ?Sized>(&mut self, door: &DoorPage<'_, impl BitmapSlice>, mem: &M) {
        if self.period.is_running() {
            self.end_period(mem);
            door.clear_attention();
        }
        self.untold = Ended::default();
    }
}
