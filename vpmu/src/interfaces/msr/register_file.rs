//! The emulated registers of one vCPU, whatever their layout.

use crate::accounting::accounts::Accounts;
use crate::accounting::attachment::Attachment;
use crate::accounting::slots::{HoldsSlots, SlotSet, Slots};
use crate::accounting::totals::RowIndex;
use crate::config::PmuConfig;
use crate::families::registers::Registers;
use crate::host::pmu::HostPmu;
use crate::interfaces::msr::context::{Context, RegisterCounter, RegisterCounts};
use crate::interfaces::msr::counter;
use crate::interfaces::msr::p4_file::P4File;
use crate::interfaces::msr::p5_file::P5File;
use crate::interfaces::msr::p6_file::P6File;
use crate::interfaces::outcome::MsrOutcome;

/// The registers of one vCPU.
pub(crate) struct RegisterFile {
    layout: Layout,
    counts: RegisterCounts,
}

/// As the family lays them out.
enum Layout {
    None,
    P5(Box<P5File>),
    P6(Box<P6File>),
    P4(Box<P4File>),
}

/// `$call` on whatever file there is, `$none` without one.
macro_rules! on_file {
    ($layout:expr, $none:expr, $file:ident => $call:expr) => {
        match $layout {
            Layout::None => $none,
            Layout::P5($file) => $call,
            Layout::P6($file) => $call,
            Layout::P4($file) => $call,
        }
    };
}

impl Layout {
    /// The registers after reset.
    fn new(config: &PmuConfig) -> Self {
        let facts = config.model.facts();
        match facts.registers {
            _ if !config.pmu_registers => Self::None,
            Registers::P5(registers) => Self::P5(Box::new(P5File::new(registers, facts.width))),
            Registers::P6(registers) => Self::P6(Box::new(P6File::new(registers, facts.width))),
            Registers::P4(registers) => Self::P4(Box::new(P4File::new(registers, facts.width))),
            Registers::None => Self::None,
        }
    }
}

impl RegisterFile {
    /// The registers after reset.
    pub(crate) fn new(config: &PmuConfig) -> Self {
        Self { layout: Layout::new(config), counts: RegisterCounts::default() }
    }

    /// The vCPU is reset. What was counted is in the totals; what happened before is still counted.
    pub(crate) fn reset<H: HostPmu>(&mut self, accounts: &mut Accounts<H>, attachment: &Attachment) {
        self.stop(accounts, attachment);
        self.layout = Layout::new(accounts.config());
    }

    pub(crate) fn read<H: HostPmu>(
        &mut self,
        msr: u32,
        accounts: &mut Accounts<H>,
        attachment: &Attachment,
    ) -> MsrOutcome {
        let mut context = Context { accounts, attachment, counts: &mut self.counts };
        let outcome =
            on_file!(&mut self.layout, MsrOutcome::NotHandled, file => file.read(msr, &mut context));
        self.count_read(outcome)
    }

    /// RDPMC of general counter `number`, or of fixed counter `number`.
    pub(crate) fn rdpmc<H: HostPmu>(
        &mut self,
        number: u32,
        fixed: bool,
        accounts: &mut Accounts<H>,
        attachment: &Attachment,
    ) -> MsrOutcome {
        let mut context = Context { accounts, attachment, counts: &mut self.counts };
        let value = on_file!(&mut self.layout, None, file => file.rdpmc(number, fixed, &mut context));
        self.count_read(value.map_or(MsrOutcome::GpFault, MsrOutcome::Value))
    }

    fn count_read(&mut self, outcome: MsrOutcome) -> MsrOutcome {
        self.counts.reads += 1;
        self.counts.faults += u64::from(!matches!(outcome, MsrOutcome::Value(_)));
        outcome
    }

    pub(crate) fn write<H: HostPmu>(
        &mut self,
        msr: u32,
        value: u64,
        accounts: &mut Accounts<H>,
        attachment: &Attachment,
    ) -> MsrOutcome {
        let mut context = Context { accounts, attachment, counts: &mut self.counts };
        let outcome =
            on_file!(&mut self.layout, MsrOutcome::NotHandled, file => file.write(msr, value, &mut context));
        self.counts.writes += 1;
        self.counts.faults += u64::from(outcome != MsrOutcome::Handled);
        outcome
    }

    /// Look for overflows. What is found is noted in the registers.
    pub(crate) fn look<H: HostPmu>(&mut self, accounts: &mut Accounts<H>, attachment: &Attachment) {
        let mut context = Context { accounts, attachment, counts: &mut self.counts };
        on_file!(&mut self.layout, (), file => file.look(&mut context));
    }

    /// Whether an overflow interrupt is due; says so once.
    pub(crate) fn take_pmi(&mut self) -> bool {
        on_file!(&mut self.layout, false, file => file.take_pmi())
    }

    /// The count of `slot` at which the next of its counters overflows with an interrupt.
    pub(crate) fn deadline(&self, slot: u8) -> Option<u64> {
        on_file!(&self.layout, None, file => counter::deadline(file.counters(), slot))
    }

    /// Stop every counter, so that totals are final.
    pub(crate) fn stop<H: HostPmu>(&mut self, accounts: &mut Accounts<H>, attachment: &Attachment) {
        let mut context = Context { accounts, attachment, counts: &mut self.counts };
        on_file!(&mut self.layout, (), file => file.stop(&mut context));
    }

    /// What running counters have counted since their start.
    pub(crate) fn running<H: HostPmu>(&self, slots: &mut Slots<H>) -> Vec<(RowIndex, u64)> {
        on_file!(&self.layout, Vec::new(), file => file.counters().filter_map(|counter| counter.running(slots)).collect())
    }

    /// The counters that are enabled.
    pub(crate) fn enabled<H: HostPmu>(&self, slots: &mut Slots<H>) -> Vec<RegisterCounter> {
        on_file!(&self.layout, Vec::new(), file => file.enabled(slots))
    }

    pub(crate) fn counts(&self) -> RegisterCounts {
        self.counts
    }
}

impl HoldsSlots for RegisterFile {
    /// Those that its running counters read.
    fn slots(&self) -> SlotSet {
        on_file!(&self.layout, 0, file => counter::slots(file.counters()))
    }
}
