//! The registers of the paravirtual interface, and the interrupt that it owes its guest.

use vm_memory::GuestMemory;
use vm_memory::bitmap::BS;

use crate::accounting::accounts::Accounts;
use crate::accounting::attachment::Attachment;
use crate::accounting::slots::HoldsSlots;
use crate::guest_memory::PAGE_SIZE;
use crate::host::pmu::HostPmu;
use crate::interfaces::outcome::MsrOutcome;
use crate::interfaces::pv::counts::PvCounts;
use crate::interfaces::pv::error::PvError;
use crate::interfaces::pv::msrs::PvMsr;
use crate::interfaces::pv::vcpu_page::VcpuPage;

/// The paravirtual interface of one vCPU.
#[derive(Default)]
pub(crate) struct PvInterface {
    /// MSR_PAGE as written: page address | 1, or 0.
    page_msr: u64,
    /// MSR_VECTOR: of the interrupt; 0: the guest's LVTPC says.
    vector: u8,
    /// An overflow of the attached state has to be reported by an interrupt.
    pmi: bool,
    /// One that LVTPC reports has been taken: the page is to say so before the guest goes on.
    attention: bool,
    counts: PvCounts,
}

impl PvInterface {
    /// The vCPU is reset; what happened before is still counted.
    pub(crate) fn reset(&mut self) {
        *self = Self { counts: self.counts, ..Self::default() };
    }

    /// The guest reads a register that is the interface's own.
    pub(crate) fn read(&self, msr: PvMsr) -> MsrOutcome {
        match msr {
            PvMsr::Page => MsrOutcome::Value(self.page_msr),
            PvMsr::Vector => MsrOutcome::Value(self.vector.into()),
            _ => MsrOutcome::GpFault,
        }
    }

    /// The guest writes MSR_VECTOR.
    pub(crate) fn write_vector(&mut self, value: u64) -> MsrOutcome {
        match value {
            0 | 16..=255 => {
                self.vector = value as u8;
                MsrOutcome::Handled
            }
            _ => MsrOutcome::GpFault,
        }
    }

    /// The guest writes MSR_PAGE. Withdrawing the page ends the running interval as SUSPEND does: nobody could end it
    /// later. Registering another page does not, so that a driver may move its page.
    pub(crate) fn write_page<H: HostPmu, M: GuestMemory + ?Sized>(
        &mut self,
        value: u64,
        mem: &M,
        accounts: &mut Accounts<H>,
        attachment: &mut Attachment,
    ) -> MsrOutcome {
        if value == 0 {
            accounts.slots_mut().begin_operation();
            attachment.end(accounts, mem);
            attachment.forget_pending();
            if let Some(page) = self.page(mem) {
                page.clear_attention();
            }
        } else if value % PAGE_SIZE as u64 != 1 || VcpuPage::new(mem, value - 1).is_none() {
            return MsrOutcome::GpFault;
        }
        self.page_msr = value;
        MsrOutcome::Handled
    }

    /// The page the guest registered, if it did and the memory is still there.
    pub(super) fn page<'a, M: GuestMemory + ?Sized>(
        &self,
        mem: &'a M,
    ) -> Option<VcpuPage<'a, BS<'a, M::Bitmap>>> {
        VcpuPage::new(mem, self.page_msr.checked_sub(1)?)
    }

    /// Counters of the attached state have overflowed, if `overflowed`, and the guest does not know.
    pub(crate) fn owe_interrupt(&mut self, overflowed: bool) {
        self.pmi |= overflowed;
    }

    /// Whether that is to be reported as LVTPC says, once; not where the guest has named a vector.
    pub(crate) fn take_pmi(&mut self) -> bool {
        let due = self.vector == 0 && std::mem::take(&mut self.pmi);
        self.attention |= due;
        due
    }

    /// The vector by which it is to be reported, once. The page says what the interrupt is for.
    pub(crate) fn take_vector<H: HostPmu, M: GuestMemory + ?Sized>(
        &mut self,
        mem: &M,
        accounts: &mut Accounts<H>,
        attachment: &mut Attachment,
        others: &impl HoldsSlots,
    ) -> Option<u8> {
        if std::mem::take(&mut self.attention)
            && let Some(page) = self.page(mem)
        {
            page.set_attention(0);
        }
        if self.vector == 0 || !std::mem::take(&mut self.pmi) {
            return None;
        }
        let stopped = attachment.stop_overflowed(accounts, mem, others);
        if let Some(page) = self.page(mem) {
            page.set_attention(stopped);
        }
        Some(self.vector)
    }

    /// Operation `number` was asked for.
    #[inline]
    pub(super) fn count(&mut self, number: u64, outcome: &Result<(), PvError>) {
        self.counts.count(number, outcome);
    }

    pub(crate) fn counts(&self) -> PvCounts {
        self.counts
    }
}
