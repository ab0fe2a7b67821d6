//! A counter behind registers.

use crate::accounting::register_value::RegisterValue;
use crate::accounting::slots::{SlotSet, Slots, slot_set};
use crate::accounting::totals::RowIndex;
use crate::families::select::Select;
use crate::host::pmu::{HostEvent, HostPmu};
use crate::interfaces::msr::context::{Context, RegisterCounter};

/// See the module.
pub(super) struct Counter {
    /// Its contents, when it was last written, stopped or looked at.
    value: RegisterValue,
    width: u32,
    select: Select,
    what: What,
    run: Option<Run>,
    /// Where its event was last time.
    hint: u8,
    /// An overflow interrupts.
    interrupt: bool,
}

/// What a select means on this host.
#[derive(Clone, Copy)]
enum What {
    /// No privilege level, no event: the register stands still by right.
    Nothing,
    /// The host has nothing that counts this.
    Unknown,
    Event(HostEvent, RowIndex),
}

/// The counter counts, as differences of a slot.
#[derive(Clone, Copy)]
struct Run {
    slot: u8,
    start: u64,
}

/// The slots of all `counters` but number `index`, which is to be given another event.
pub(super) fn slots_of_others<'a>(counters: impl Iterator<Item = &'a Counter>, index: usize) -> SlotSet {
    slots(counters.enumerate().filter(|(of, _)| *of != index).map(|(_, counter)| counter))
}

/// What became of a counter that was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) overflow: bool,
    /// And it interrupts.
    pub(super) pmi: bool,
}

impl Counter {
    pub(super) const fn new(width: u32) -> Self {
        Self {
            value: RegisterValue::new(0, width),
            width,
            select: Select::general(0),
            what: What::Nothing,
            run: None,
            hint: 0,
            interrupt: false,
        }
    }

    pub(super) fn width(&self) -> u32 {
        self.width
    }

    pub(super) fn slot(&self) -> Option<u8> {
        self.run.map(|run| run.slot)
    }

    /// Bring the counter to what its registers say now. `keep`: slots that must stay, the other
    /// counters' among them.
    pub(super) fn apply<H: HostPmu>(
        &mut self,
        enabled: bool,
        select: Select,
        interrupt: bool,
        keep: SlotSet,
        context: &mut Context<'_, H>,
    ) -> Seen {
        let mut seen = Seen::default();
        if self.run.is_some() && (!enabled || select != self.select) {
            seen = self.look(context);
            self.run = None;
        }
        self.interrupt = interrupt;
        if select != self.select {
            self.select = select;
            self.what = what(select, context);
        }
        match self.run {
            None if enabled => self.start(keep, context),
            Some(run) => self.set_threshold(run, context),
            None => {}
        }
        seen
    }

    fn start<H: HostPmu>(&mut self, keep: SlotSet, context: &mut Context<'_, H>) {
        let What::Event(event, _) = self.what else {
            context.counts.lost += u64::from(matches!(self.what, What::Unknown));
            return;
        };
        match context.slots().place_one(event, self.hint, keep) {
            Ok(slot) => {
                self.hint = slot;
                self.run = context.slots().now(slot).map(|start| Run { slot, start });
            }
            Err(error) => context.accounts.refuse(error),
        }
        match self.run {
            Some(run) => self.set_threshold(run, context),
            None => context.counts.lost += 1,
        }
    }

    fn set_threshold<H: HostPmu>(&self, run: Run, context: &mut Context<'_, H>) {
        if self.interrupt
            && let Err(error) = context.slots().lower_threshold(run.slot, self.value.overflow_at(run.start))
        {
            context.counts.lost += 1;
            context.accounts.refuse(error);
        }
    }

    /// Bring its contents up to now.
    pub(super) fn look<H: HostPmu>(&mut self, context: &mut Context<'_, H>) -> Seen {
        let Some(run) = &mut self.run else { return Seen::default() };
        let Some(now) = context.slots().now(run.slot) else {
            // The host took its counter. What it counted since the last look is not known, so it stands still from
            // there on, until it is enabled again. The guest looks at every read, so it sees nothing go backwards.
            self.run = None;
            context.counts.lost += 1;
            return Seen::default();
        };
        let count = now.saturating_sub(run.start);
        run.start = now;
        if let What::Event(_, row) = self.what {
            context.accounts.totals_mut().add(row, count);
        }
        let overflow = self.value.overflows_after(count);
        self.value = self.value.after(count);
        context.counts.overflows += u64::from(overflow);
        Seen { overflow, pmi: overflow && self.interrupt }
    }

    /// Its contents now. Nothing changes.
    pub(super) fn read<H: HostPmu>(&self, slots: &mut Slots<H>) -> u64 {
        self.value.after(self.elapsed(slots)).bits()
    }

    fn elapsed<H: HostPmu>(&self, slots: &mut Slots<H>) -> u64 {
        self.run.and_then(|run| Some(slots.now(run.slot)?.saturating_sub(run.start))).unwrap_or(0)
    }

    pub(super) fn write<H: HostPmu>(&mut self, value: u64, context: &mut Context<'_, H>) -> Seen {
        let seen = self.look(context);
        self.value = RegisterValue::new(value, self.width);
        if let Some(run) = self.run {
            self.set_threshold(run, context);
        }
        seen
    }

    /// Stop it for good: what it counted is in the totals.
    pub(super) fn stop<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        let _ = self.look(context);
        self.run = None;
        self.interrupt = false;
    }

    /// As the dump shows it, with RDPMC's number for it.
    pub(super) fn shown<H: HostPmu>(&self, rdpmc: u32, slots: &mut Slots<H>) -> RegisterCounter {
        let counted = self.run.is_some();
        RegisterCounter { rdpmc, select: self.select, value: self.read(slots), counted }
    }

    /// The count of its slot at which it overflows with an interrupt.
    fn deadline(&self) -> Option<(u8, u64)> {
        let run = self.run.filter(|_| self.interrupt)?;
        Some((run.slot, self.value.overflow_at(run.start)))
    }

    pub(super) fn running<H: HostPmu>(&self, slots: &mut Slots<H>) -> Option<(RowIndex, u64)> {
        match self.what {
            What::Event(_, row) if self.run.is_some() => Some((row, self.elapsed(slots))),
            _ => None,
        }
    }
}

/// The slots that running counters read.
pub(super) fn slots<'a>(counters: impl Iterator<Item = &'a Counter>) -> SlotSet {
    slot_set(counters.filter_map(Counter::slot))
}

/// The count of `slot` at which the next of `counters` overflows with an interrupt.
pub(super) fn deadline<'a>(counters: impl Iterator<Item = &'a Counter>, slot: u8) -> Option<u64> {
    counters.filter_map(Counter::deadline).filter(|(of, _)| *of == slot).map(|(_, at)| at).min()
}

fn what<H: HostPmu>(select: Select, context: &mut Context<'_, H>) -> What {
    match context.accounts.host_event(select) {
        Some(HostEvent { usr: false, os: false, .. }) => What::Nothing,
        Some(event) => What::Event(event, context.accounts.totals_mut().row(select, event)),
        None => What::Unknown,
    }
}
