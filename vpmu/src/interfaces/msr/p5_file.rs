//! Registers as the P5 has them: one CESR whose halves say what two counters count. No counter interrupts.

use crate::accounting::slots::Slots;
use crate::families::registers::P5Registers;
use crate::families::select::Select;
use crate::host::pmu::HostPmu;
use crate::interfaces::msr::context::{Context, RegisterCounter};
use crate::interfaces::msr::counter::{Counter, slots_of_others};
use crate::interfaces::outcome::MsrOutcome;

/// Bits 6 and 7 of a half: count at CPL 0 to 2, at CPL 3. With neither the counter is stopped.
const LEVELS: u16 = 0b11 << 6;
/// Bit 9 of a half: what the counter's pin shows, which nothing is connected to.
const PIN: u16 = 1 << 9;

/// The registers of one vCPU.
pub(crate) struct P5File {
    registers: &'static P5Registers,
    counters: [Counter; 2],
    halves: [u16; 2],
}

impl P5File {
    pub(super) fn new(registers: &'static P5Registers, width: u32) -> Self {
        Self { registers, counters: [const { 0 }; 2].map(|_| Counter::new(width)), halves: [0; 2] }
    }

    pub(super) fn read<H: HostPmu>(&mut self, msr: u32, context: &mut Context<'_, H>) -> MsrOutcome {
        if msr == self.registers.cesr {
            let [low, high] = self.halves;
            return MsrOutcome::Value(u64::from(high) << 16 | u64::from(low));
        }
        match self.registers.counter.index_of(msr) {
            Some(i) => MsrOutcome::Value(self.read_counter(i as usize, context)),
            None => MsrOutcome::NotHandled,
        }
    }

    pub(super) fn write<H: HostPmu>(
        &mut self,
        msr: u32,
        value: u64,
        context: &mut Context<'_, H>,
    ) -> MsrOutcome {
        if msr == self.registers.cesr {
            return self.write_cesr(value, context);
        }
        let Some(i) = self.registers.counter.index_of(msr) else { return MsrOutcome::NotHandled };
        let _ = self.counters[i as usize].write(value, context);
        MsrOutcome::Handled
    }

    fn write_cesr<H: HostPmu>(&mut self, value: u64, context: &mut Context<'_, H>) -> MsrOutcome {
        let valid = u64::from(self.registers.half_valid);
        if value & !(valid << 16 | valid) != 0 {
            return MsrOutcome::GpFault;
        }
        let halves = [value as u16, (value >> 16) as u16];
        context.counts.unchanged += u64::from(halves == self.halves);
        self.halves = halves;
        for i in 0..2 {
            self.apply(i, context);
        }
        MsrOutcome::Handled
    }

    fn apply<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) {
        let half = self.halves[i] & !PIN;
        let select = Select { counter: Some(i as u8), ..Select::general(half.into()) };
        let keep = context.attached_slots() | slots_of_others(self.counters.iter(), i);
        let _ = self.counters[i].apply(self.is_enabled(i), select, false, keep, context);
    }

    fn is_enabled(&self, i: usize) -> bool {
        !self.registers.control_field || self.halves[i] & LEVELS != 0
    }

    pub(super) fn look<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        for counter in &mut self.counters {
            let _ = counter.look(context);
        }
    }

    pub(super) fn take_pmi(&mut self) -> bool {
        false
    }

    pub(super) fn rdpmc<H: HostPmu>(
        &mut self,
        number: u32,
        fixed: bool,
        context: &mut Context<'_, H>,
    ) -> Option<u64> {
        let exists = self.registers.rdpmc && !fixed && number < 2;
        exists.then(|| self.read_counter(number as usize, context))
    }

    fn read_counter<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) -> u64 {
        let _ = self.counters[i].look(context);
        self.counters[i].read(context.slots())
    }

    pub(super) fn stop<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        self.halves = [0; 2];
        self.counters.iter_mut().for_each(|counter| counter.stop(context));
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.counters.iter()
    }

    pub(super) fn enabled<H: HostPmu>(&self, slots: &mut Slots<H>) -> Vec<RegisterCounter> {
        let shown = |i: usize| self.counters[i].shown(i as u32, slots);
        (0..2).filter(|&i| self.is_enabled(i)).map(shown).collect()
    }
}
