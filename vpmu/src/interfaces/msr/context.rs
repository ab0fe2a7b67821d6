//! What the emulated registers work on, and what they say of themselves.

use serde::{Deserialize, Serialize};

use crate::accounting::accounts::Accounts;
use crate::accounting::attachment::Attachment;
use crate::accounting::slots::{HoldsSlots, SlotSet, Slots};
use crate::families::select::Select;
use crate::host::pmu::HostPmu;

/// What the registers of a vCPU reach.
pub(crate) struct Context<'a, H> {
    pub(super) accounts: &'a mut Accounts<H>,
    /// Whose slots must stay.
    pub(super) attachment: &'a Attachment,
    pub(super) counts: &'a mut RegisterCounts,
}

impl<H: HostPmu> Context<'_, H> {
    pub(super) fn slots(&mut self) -> &mut Slots<H> {
        self.accounts.slots_mut()
    }

    /// The slots that counters of the attached state read.
    pub(super) fn attached_slots(&self) -> SlotSet {
        self.attachment.slots()
    }
}

/// What happened to the emulated registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterCounts {
    /// Registers read.
    pub reads: u64,
    /// Registers written.
    pub writes: u64,
    /// Writes that changed nothing.
    pub unchanged: u64,
    /// Accesses that faulted.
    pub faults: u64,
    /// Counters that wrapped.
    pub overflows: u64,
    /// Counters that were enabled and could not be counted, or stopped being counted.
    pub lost: u64,
}

/// A counter that the guest's registers enable, as the dump shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterCounter {
    /// RDPMC's number for it.
    pub rdpmc: u32,
    /// What it is set to count.
    #[serde(flatten)]
    pub select: Select,
    /// Its contents.
    pub value: u64,
    /// Whether a host counter counts for it.
    pub counted: bool,
}
