//! The PMU of one vCPU.

use std::sync::Arc;

use perfctr_abi::door::{
    MSR_BASE, MSR_COUNT, MSR_DOORBELL, MSR_PAGE, MSR_RDPMC, MSR_RDPMC_FIXED, MSR_VECTOR, RDPMC_COUNT,
    RDPMC_FIXED_COUNT,
};
use vm_memory::GuestMemory;
use vm_memory::bitmap::BS;

use crate::config::PmuConfig;
use crate::guest_page::{DoorPage, PAGE_SIZE, StatePage};
use crate::host::{HostPmu, LoadError};
use crate::msr::{Context, RegisterCounts, RegisterFile};
use crate::period::{Ended, Period};
use crate::placement::PlacementCache;
use crate::slots::{SlotSet, Slots};
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
    pub(crate) overflows: u64,
    /// What the guest has not been told yet of the attached state's counters.
    pub(crate) untold: Ended,
    pub(crate) counts: DoorCounts,
    pub(crate) last_refusal: Option<LoadError>,
    /// This vCPU's number.
    pub(crate) cpu: u32,
    /// The registers behind the MSR door.
    pub(crate) registers: RegisterFile,
    register_counts: RegisterCounts,
    /// An overflow of the attached state has to be told by an interrupt.
    pub(crate) pmi: bool,
    /// One that LVTPC tells has been taken: the page is to say so before the guest goes on.
    attention: bool,
    /// MSR_VECTOR: of that interrupt; 0: the guest's LVTPC says.
    vector: u8,
    pmis: u64,
    /// Instructions that were executed here in the guest's place, and counted.
    emulated: u64,
    /// MSR_PAGE as written: page address | 1, or 0.
    page_msr: u64,
}

impl<H: HostPmu> VirtualPmu<H> {
    /// The PMU of vCPU `cpu` with nothing attached and its registers as after reset. All vCPUs of a VM have equal
    /// `config`s and share one `table`.
    pub fn new(config: PmuConfig, cpu: u32, table: Arc<ControlTable>, host: H) -> Self {
        Self {
            registers: RegisterFile::new(&config),
            register_counts: RegisterCounts::default(),
            cpu,
            overflows: 0,
            pmi: false,
            attention: false,
            vector: 0,
            pmis: 0,
            emulated: 0,
            config,
            table,
            slots: Slots::new(host),
            placements: PlacementCache::new(),
            period: Period::none(),
            totals: Totals::new(),
            lost: 0,
            untold: Ended::default(),
            counts: DoorCounts::default(),
            last_refusal: None,
            page_msr: 0,
        }
    }

    /// The guest reads an MSR.
    pub fn rdmsr(&mut self, msr: u32) -> MsrOutcome {
        self.slots.begin_operation();
        let outcome = match msr.wrapping_sub(MSR_BASE) {
            MSR_PAGE => return MsrOutcome::Value(self.page_msr),
            MSR_VECTOR if self.config.door.vector => return MsrOutcome::Value(self.vector.into()),
            offset if offset >= MSR_COUNT => self.read_register(msr),
            offset => {
                let (registers, mut context) = self.register_parts();
                if (MSR_RDPMC..MSR_RDPMC + RDPMC_COUNT).contains(&offset) {
                    registers.rdpmc(offset - MSR_RDPMC, false, &mut context)
                } else if (MSR_RDPMC_FIXED..MSR_RDPMC_FIXED + RDPMC_FIXED_COUNT).contains(&offset) {
                    registers.rdpmc(offset - MSR_RDPMC_FIXED, true, &mut context)
                } else {
                    return MsrOutcome::GpFault;
                }
            }
        };
        self.register_counts.reads += 1;
        self.register_counts.faults += u64::from(!matches!(outcome, MsrOutcome::Value(_)));
        outcome
    }

    /// The guest writes an MSR.
    pub fn wrmsr<M: GuestMemory + ?Sized>(&mut self, msr: u32, value: u64, mem: &M) -> MsrOutcome {
        match msr.wrapping_sub(MSR_BASE) {
            MSR_DOORBELL => match self.door_page(mem) {
                Some(door) => {
                    self.ring(value, &door, mem);
                    MsrOutcome::Handled
                }
                None => MsrOutcome::GpFault,
            },
            MSR_PAGE => self.write_page_msr(value, mem),
            MSR_VECTOR if self.config.door.vector => match value {
                0 | 16..=255 => {
                    self.vector = value as u8;
                    MsrOutcome::Handled
                }
                _ => MsrOutcome::GpFault,
            },
            offset if offset < MSR_COUNT => MsrOutcome::GpFault,
            _ => {
                self.slots.begin_operation();
                let outcome = self.write_register(msr, value);
                self.register_counts.writes += 1;
                self.register_counts.faults += u64::from(outcome != MsrOutcome::Handled);
                outcome
            }
        }
    }

    /// As on bare metal RDMSR sees itself counted, and so does a WRMSR that stops a counter. One that starts a counter is
    /// not counted by it. The paravirtual interface's registers count nothing: there are none on bare metal.
    fn read_register(&mut self, msr: u32) -> MsrOutcome {
        let counted = self.slots.add_instruction(true);
        let (registers, mut context) = self.register_parts();
        let outcome = registers.read(msr, &mut context);
        self.retire(counted, matches!(outcome, MsrOutcome::Value(_)));
        outcome
    }

    fn write_register(&mut self, msr: u32, value: u64) -> MsrOutcome {
        let counted = self.slots.add_instruction(true);
        let (registers, mut context) = self.register_parts();
        let outcome = registers.write(msr, value, &mut context);
        self.retire(counted, outcome == MsrOutcome::Handled);
        outcome
    }

    /// An instruction that `slots` have counted beforehand is done, or has faulted.
    fn retire(&mut self, slots: SlotSet, done: bool) {
        if !done {
            self.slots.withdraw_instruction(slots);
            return;
        }
        self.emulated += u64::from(slots != 0);
        let due = |period: &Period, registers: &RegisterFile, slot| {
            [period.deadline(slot), registers.deadline(slot)].into_iter().flatten().min()
        };
        for slot in (0..SlotSet::BITS as u8).filter(|slot| slots & 1 << slot != 0) {
            if due(&self.period, &self.registers, slot).is_some() {
                self.look();
            }
            let Some(count) = due(&self.period, &self.registers, slot) else { continue };
            if self.slots.alarm(slot, count).is_err() {
                self.lost += 1;
            }
        }
    }

    /// Whether [`emulated`](Self::emulated) is to be told of instructions that the VMM executes in the guest's place:
    /// they are counted now, and the source does not see them.
    pub fn counts_emulated_here(&self) -> bool {
        self.slots.count_instructions() && !self.slots.host().counts_emulated()
    }

    /// The VMM has executed one, port or memory-mapped input or output, which the guest had in kernel mode or in user
    /// mode.
    pub fn emulated(&mut self, kernel: bool) {
        self.slots.begin_operation();
        let counted = self.slots.add_instruction(kernel);
        self.retire(counted, true);
    }

    /// Note the overflows there have been.
    fn look(&mut self) {
        self.pmi |= self.period.has_overflowed(&mut self.slots);
        let (registers, mut context) = self.register_parts();
        registers.look(&mut context);
    }

    /// The vCPU has left its guest for no reason of the guest's: look whether counters have overflowed. To be called
    /// whenever an [alarm](HostPmu::arm) may have gone off, before anything else is done with the vCPU.
    pub fn kicked(&mut self) {
        self.slots.begin_operation();
        self.look();
        let (period, registers) = (&self.period, &self.registers);
        let failed = self.slots.renew_alarms(|slot| {
            [period.deadline(slot), registers.deadline(slot)].into_iter().flatten().min()
        });
        self.lost += u64::from(failed.count_ones());
    }

    /// Whether an overflow interrupt is to be delivered as the guest's LVTPC says. Says so once for all overflows
    /// that have been found; their status bits are set. To be asked after each access and after
    /// [`kicked`](Self::kicked).
    pub fn take_pmi(&mut self) -> bool {
        let registers = self.registers.take_pmi();
        let attached = self.vector == 0 && std::mem::take(&mut self.pmi);
        self.attention |= attached;
        let pmi = registers | attached;
        self.pmis += u64::from(pmi);
        pmi
    }

    /// The vector of an interrupt that is to be delivered because a counter of the attached state has overflowed; where
    /// the guest has named none [`take_pmi`](Self::take_pmi) says so. To be asked when that is, and after it.
    pub fn take_vector<M: GuestMemory + ?Sized>(&mut self, mem: &M) -> Option<u8> {
        if std::mem::take(&mut self.attention)
            && let Some(door) = self.door_page(mem)
        {
            door.set_attention(0);
        }
        if self.vector == 0 || !std::mem::take(&mut self.pmi) {
            return None;
        }
        self.pmis += 1;
        let stopped = self.stop_overflowed(mem);
        if let Some(door) = self.door_page(mem) {
            door.set_attention(stopped);
        }
        Some(self.vector)
    }

    fn register_parts(&mut self) -> (&mut RegisterFile, Context<'_, H>) {
        let context = Context {
            config: self.config,
            slots: &mut self.slots,
            totals: &mut self.totals,
            period: &self.period,
            counts: &mut self.register_counts,
            refusal: &mut self.last_refusal,
        };
        (&mut self.registers, context)
    }

    /// Suspend the attached state, if any, and stop the counters of the registers, so that totals are final. For the
    /// end of a VM.
    pub fn stop<M: GuestMemory + ?Sized>(&mut self, mem: &M) {
        self.slots.begin_operation();
        self.end_period(mem);
        let (registers, mut context) = self.register_parts();
        registers.stop(&mut context);
    }

    /// The vCPU is reset: no page is registered, nothing attached, no register set. Guest memory is not written, it
    /// belongs to the next boot. Totals, loaded events and the ids of the VM stay.
    pub fn reset(&mut self) {
        self.slots.begin_operation();
        let ended = self.period.end(&mut self.slots, &mut self.totals, None::<&StatePage<'_, ()>>, self.cpu);
        self.lost += u64::from(ended.lost.count_ones());
        self.untold = Ended::default();
        (self.page_msr, self.vector) = (0, 0);
        let (registers, mut context) = self.register_parts();
        registers.stop(&mut context);
        self.registers = RegisterFile::new(&self.config);
        (self.pmi, self.attention) = (false, false);
    }

    /// Everything this PMU knows of itself, with the running period included. Nothing changes, in the guest or here,
    /// but like every use of the counters it belongs on the vCPU's thread.
    pub fn snapshot(&mut self) -> Snapshot {
        self.slots.begin_operation();
        let mut running: Vec<(RowIndex, u64)> = self.period.running(&mut self.slots).collect();
        running.extend(self.registers.running(&mut self.slots));
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
            hardware: self.slots.host().hardware(),
            emulated: self.emulated,
            counts_emulated: self.slots.host().counts_emulated(),
            door: self.counts,
            registers: self.register_counts,
            enabled: self.registers.enabled(&mut self.slots),
            overflows: self.overflows,
            pmis: self.pmis,
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
            self.untold = Ended::default();
            if let Some(door) = self.door_page(mem) {
                door.clear_attention();
            }
        } else if value % PAGE_SIZE as u64 != 1 || DoorPage::new(mem, value - 1).is_none() {
            return MsrOutcome::GpFault;
        }
        self.page_msr = value;
        MsrOutcome::Handled
    }
}
