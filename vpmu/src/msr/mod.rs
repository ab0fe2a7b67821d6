//! The MSR door: the registers by which a guest programs counters without a driver of ours.
//!
//! Its counters follow the rules of all others: a register holds what it held when it was last written or stopped,
//! plus `now - start` while it counts. So writing a counter, enabling it and disabling it change software only; the
//! host counter that holds its event runs on. The host is called when an event is new to it, and when an overflow
//! with an interrupt is due sooner than any alarm that is set.
//!
//! One file for each way in which processors lay out their registers; what they hold is the family's table.

mod counter;
mod p4;
mod p5;
mod p6;

use serde::{Deserialize, Serialize};

use crate::config::PmuConfig;
use crate::host::{HostPmu, LoadError};
use crate::period::Period;
use crate::registers::Registers;
use crate::select::Select;
use crate::slots::{SlotSet, Slots};
use crate::totals::{RowIndex, Totals};
use crate::virtual_pmu::MsrOutcome;

/// What the registers of a vCPU reach.
pub(crate) struct Context<'a, H> {
    pub(crate) config: PmuConfig,
    pub(crate) slots: &'a mut Slots<H>,
    pub(crate) totals: &'a mut Totals,
    /// Of the attached state of the perfctr door, whose slots must stay.
    pub(crate) period: &'a Period,
    pub(crate) counts: &'a mut RegisterCounts,
    pub(crate) refusal: &'a mut Option<LoadError>,
}

/// What happened at the MSR door.
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
    /// What it is told to count.
    #[serde(flatten)]
    pub select: Select,
    /// Its contents.
    pub value: u64,
    /// Whether a host counter counts for it.
    pub counted: bool,
}

/// The registers of one vCPU.
pub(crate) enum RegisterFile {
    None,
    P5(Box<p5::P5File>),
    P6(Box<p6::P6File>),
    P4(Box<p4::P4File>),
}

/// `$call` on whatever file there is, `$none` without one.
macro_rules! on_file {
    ($self:expr, $none:expr, $file:ident => $call:expr) => {
        match $self {
            RegisterFile::None => $none,
            RegisterFile::P5($file) => $call,
            RegisterFile::P6($file) => $call,
            RegisterFile::P4($file) => $call,
        }
    };
}

impl RegisterFile {
    /// The registers after reset.
    pub(crate) fn new(config: &PmuConfig) -> Self {
        let facts = config.model.facts();
        match facts.registers {
            _ if !config.msr_door => Self::None,
            Registers::P5(registers) => Self::P5(Box::new(p5::P5File::new(registers, facts.width))),
            Registers::P6(registers) => Self::P6(Box::new(p6::P6File::new(registers, facts.width))),
            Registers::P4(registers) => Self::P4(Box::new(p4::P4File::new(registers, facts.width))),
            Registers::None => Self::None,
        }
    }

    pub(crate) fn read<H: HostPmu>(&mut self, msr: u32, context: &mut Context<'_, H>) -> MsrOutcome {
        on_file!(self, MsrOutcome::NotMine, file => file.read(msr, context))
    }

    pub(crate) fn write<H: HostPmu>(
        &mut self,
        msr: u32,
        value: u64,
        context: &mut Context<'_, H>,
    ) -> MsrOutcome {
        on_file!(self, MsrOutcome::NotMine, file => file.write(msr, value, context))
    }

    /// RDPMC of general counter `number`, or of fixed counter `number`.
    pub(crate) fn rdpmc<H: HostPmu>(
        &mut self,
        number: u32,
        fixed: bool,
        context: &mut Context<'_, H>,
    ) -> MsrOutcome {
        let value = on_file!(self, None, file => file.rdpmc(number, fixed, context));
        value.map_or(MsrOutcome::GpFault, MsrOutcome::Value)
    }

    /// The slots its running counters read.
    pub(crate) fn slots(&self) -> SlotSet {
        on_file!(self, 0, file => counter::slots(file.counters()))
    }

    /// Look for overflows. What is found is noted in the registers.
    pub(crate) fn look<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        on_file!(self, (), file => file.look(context))
    }

    /// Whether an overflow interrupt is due; says so once.
    pub(crate) fn take_pmi(&mut self) -> bool {
        on_file!(self, false, file => file.take_pmi())
    }

    /// The count of `slot` at which the next of its counters overflows with an interrupt.
    pub(crate) fn deadline(&self, slot: u8) -> Option<u64> {
        on_file!(self, None, file => counter::deadline(file.counters(), slot))
    }

    /// Stop every counter, so that totals are final.
    pub(crate) fn stop<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        on_file!(self, (), file => file.stop(context))
    }

    /// What running counters have counted since their start.
    pub(crate) fn running<H: HostPmu>(&self, slots: &mut Slots<H>) -> Vec<(RowIndex, u64)> {
        on_file!(self, Vec::new(), file => file.counters().filter_map(|counter| counter.running(slots)).collect())
    }

    /// The counters that are enabled.
    pub(crate) fn enabled<H: HostPmu>(&self, slots: &mut Slots<H>) -> Vec<RegisterCounter> {
        on_file!(self, Vec::new(), file => file.enabled(slots))
    }
}
