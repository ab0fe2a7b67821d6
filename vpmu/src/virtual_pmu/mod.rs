//! The PMU of one vCPU: its two interfaces, and what they count with.

pub(crate) mod snapshot;

use std::sync::Arc;

use vm_memory::GuestMemory;

use crate::accounting::accounts::Accounts;
use crate::accounting::attachment::Attachment;
use crate::accounting::control_table::ControlTable;
use crate::accounting::slots::SlotSet;
use crate::config::PmuConfig;
use crate::host::pmu::HostPmu;
use crate::interfaces::msr::register_file::RegisterFile;
use crate::interfaces::outcome::MsrOutcome;
use crate::interfaces::pv::interface::PvInterface;
use crate::interfaces::pv::msrs::PvMsr;
use crate::interfaces::pv::operation::Doorbell;

/// The performance counters of one vCPU, owned by the vCPU's thread.
pub struct VirtualPmu<H> {
    accounts: Accounts<H>,
    /// The state that the guest driver has attached.
    attachment: Attachment,
    pv: PvInterface,
    registers: RegisterFile,
    pmis: u64,
    /// Instructions that were executed here in the guest's place, and counted.
    emulated: u64,
}

impl<H: HostPmu> VirtualPmu<H> {
    /// The PMU of vCPU `cpu` with nothing attached and its registers as after reset. All vCPUs of a VM have equal
    /// `config`s and share one `table`.
    pub fn new(config: PmuConfig, cpu: u32, table: Arc<ControlTable>, host: H) -> Self {
        Self {
            accounts: Accounts::new(config, host),
            attachment: Attachment::new(cpu, table),
            pv: PvInterface::default(),
            registers: RegisterFile::new(&config),
            pmis: 0,
            emulated: 0,
        }
    }

    /// The guest reads an MSR.
    pub fn rdmsr(&mut self, msr: u32) -> MsrOutcome {
        self.accounts.slots_mut().begin_operation();
        match PvMsr::of(msr) {
            None => self.read_register(msr),
            Some(PvMsr::Rdpmc { number, fixed }) => {
                self.registers.rdpmc(number, fixed, &mut self.accounts, &self.attachment)
            }
            Some(own) => self.pv.read(own),
        }
    }

    /// The guest writes an MSR.
    pub fn wrmsr<M: GuestMemory + ?Sized>(&mut self, msr: u32, value: u64, mem: &M) -> MsrOutcome {
        match PvMsr::of(msr) {
            None => self.write_register(msr, value),
            Some(PvMsr::Doorbell) => self.doorbell(mem).dispatch(value),
            Some(PvMsr::Page) => self.pv.write_page(value, mem, &mut self.accounts, &mut self.attachment),
            Some(PvMsr::Vector) => self.pv.write_vector(value),
            Some(PvMsr::Rdpmc { .. } | PvMsr::Reserved) => MsrOutcome::GpFault,
        }
    }

    fn doorbell<'a, M: GuestMemory + ?Sized>(&'a mut self, mem: &'a M) -> Doorbell<'a, H, M, RegisterFile> {
        Doorbell {
            pv: &mut self.pv,
            accounts: &mut self.accounts,
            attachment: &mut self.attachment,
            others: &self.registers,
            mem,
        }
    }

    /// As on bare metal RDMSR sees itself counted, and so does a WRMSR that stops a counter. One that starts a counter is
    /// not counted by it. The paravirtual interface's registers count nothing: there are none on bare metal.
    fn read_register(&mut self, msr: u32) -> MsrOutcome {
        let counted = self.accounts.slots_mut().add_instruction(true);
        let outcome = self.registers.read(msr, &mut self.accounts, &self.attachment);
        self.retire(counted, matches!(outcome, MsrOutcome::Value(_)));
        outcome
    }

    fn write_register(&mut self, msr: u32, value: u64) -> MsrOutcome {
        self.accounts.slots_mut().begin_operation();
        let counted = self.accounts.slots_mut().add_instruction(true);
        let outcome = self.registers.write(msr, value, &mut self.accounts, &self.attachment);
        self.retire(counted, outcome == MsrOutcome::Handled);
        let (attachment, registers) = (&self.attachment, &self.registers);
        self.accounts.slots_mut().raise_near_thresholds(|slot| deadline(attachment, registers, slot));
        outcome
    }

    /// An instruction that `slots` have counted beforehand is done, or has faulted.
    fn retire(&mut self, slots: SlotSet, done: bool) {
        if !done {
            self.accounts.slots_mut().withdraw_instruction(slots);
            return;
        }
        self.emulated += u64::from(slots != 0);
        for slot in (0..SlotSet::BITS as u8).filter(|slot| slots & 1 << slot != 0) {
            if deadline(&self.attachment, &self.registers, slot).is_some() {
                self.look();
            }
            let Some(count) = deadline(&self.attachment, &self.registers, slot) else { continue };
            if self.accounts.slots_mut().lower_threshold(slot, count).is_err() {
                self.accounts.lose(1);
            }
        }
    }

    /// Whether [`emulated`](Self::emulated) is to hear of instructions that the VMM executes in the guest's place:
    /// they are counted now, and the source does not see them.
    pub fn counts_emulated_here(&self) -> bool {
        self.accounts.slots().count_instructions() && !self.host().counts_emulated()
    }

    /// The VMM has executed one, port or memory-mapped input or output, which the guest had in kernel mode or in user
    /// mode.
    pub fn emulated(&mut self, kernel: bool) {
        self.accounts.slots_mut().begin_operation();
        let counted = self.accounts.slots_mut().add_instruction(kernel);
        self.retire(counted, true);
    }

    /// Note the overflows there have been.
    fn look(&mut self) {
        self.pv.owe_interrupt(self.attachment.has_overflowed(&mut self.accounts));
        self.registers.look(&mut self.accounts, &self.attachment);
    }

    /// The vCPU has left its guest for no reason of the guest's: look whether counters have overflowed. To be called
    /// whenever an [overflow threshold](HostPmu::arm) may have been passed, before anything else is done with the vCPU.
    pub fn kicked(&mut self) {
        self.accounts.slots_mut().begin_operation();
        self.look();
        let (attachment, registers) = (&self.attachment, &self.registers);
        let failed = self.accounts.slots_mut().renew_thresholds(|slot| deadline(attachment, registers, slot));
        self.accounts.lose(failed.count_ones());
    }

    /// Whether an overflow interrupt is to be delivered as the guest's LVTPC says. Says so once for all overflows
    /// that have been found; their status bits are set. To be asked after each access and after
    /// [`kicked`](Self::kicked).
    pub fn take_pmi(&mut self) -> bool {
        let registers = self.registers.take_pmi();
        let pmi = self.pv.take_pmi() | registers;
        self.pmis += u64::from(pmi);
        pmi
    }

    /// The vector of an interrupt that is to be delivered because a counter of the attached state has overflowed; where
    /// the guest has named none [`take_pmi`](Self::take_pmi) says so. To be asked when that is, and after it.
    pub fn take_vector<M: GuestMemory + ?Sized>(&mut self, mem: &M) -> Option<u8> {
        let vector = self.pv.take_vector(mem, &mut self.accounts, &mut self.attachment, &self.registers)?;
        self.pmis += 1;
        Some(vector)
    }

    /// Suspend the attached state, if any, and stop the counters of the registers, so that totals are final. For the
    /// end of a VM.
    pub fn stop<M: GuestMemory + ?Sized>(&mut self, mem: &M) {
        self.accounts.slots_mut().begin_operation();
        self.attachment.end(&mut self.accounts, mem);
        self.registers.stop(&mut self.accounts, &self.attachment);
    }

    /// The vCPU is reset: no page is registered, nothing attached, no register set. Guest memory is not written, it
    /// belongs to the next boot. Totals, loaded events and the ids of the VM stay.
    pub fn reset(&mut self) {
        self.accounts.slots_mut().begin_operation();
        self.attachment.reset(&mut self.accounts);
        self.pv.reset();
        self.registers.reset(&mut self.accounts, &self.attachment);
    }

    /// The source of host counts.
    pub fn host(&self) -> &H {
        self.accounts.slots().host()
    }

    /// The same, to adjust it. Its slots belong to the engine.
    pub fn host_mut(&mut self) -> &mut H {
        self.accounts.slots_mut().host_mut()
    }
}

/// The count of `slot` at which the next counter of either interface overflows.
fn deadline(attachment: &Attachment, registers: &RegisterFile, slot: u8) -> Option<u64> {
    [attachment.deadline(slot), registers.deadline(slot)].into_iter().flatten().min()
}
