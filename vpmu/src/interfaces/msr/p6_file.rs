//! Registers as the P6 has them, and as Intel and AMD have extended them ever since: an event select for each counter,
//! then fixed counters, then global control and status.

use crate::accounting::slots::Slots;
use crate::families::registers::{CounterWrite, Enable, FixedRegisters, P6Registers};
use crate::families::select::Select;
use crate::host::pmu::HostPmu;
use crate::interfaces::msr::context::{Context, RegisterCounter};
use crate::interfaces::msr::counter::{Counter, Seen, slots_of_others};
use crate::interfaces::outcome::MsrOutcome;

/// Bit 22 of an event select: enabled.
const ENABLE: u64 = 1 << 22;
/// Bit 20 of an event select: interrupt on overflow.
const INT: u64 = 1 << 20;
/// Bits 16 and 17: count in user mode, in kernel mode.
const LEVELS: u64 = 0b11 << 16;
/// Of the four bits of a fixed counter: privilege levels, interrupt.
const FIXED_LEVELS: u64 = 3;
const FIXED_PMI: u64 = 8;
/// Where fixed counters begin in the global registers.
const FIXED_SHIFT: u32 = 32;
const PERF_CAPABILITIES: u32 = 0x345;

/// Most general and fixed counters of any family.
const GENERAL: usize = 8;
const FIXED: usize = 4;

/// The registers of one vCPU.
pub(crate) struct P6File {
    registers: &'static P6Registers,
    general: [Counter; GENERAL],
    evntsel: [u64; GENERAL],
    fixed: [Counter; FIXED],
    fixed_control: u64,
    global_control: u64,
    global_status: u64,
    pmi: bool,
    /// A register has been accessed since reset. Until then no counter needs to count: those that cannot be stopped
    /// begin with the first access, and what they hold by then nobody can foretell.
    begun: bool,
}

/// Which register an MSR is.
#[derive(Clone, Copy)]
enum Register {
    Evntsel(usize),
    Counter(usize, CounterWrite),
    Fixed(usize, u32),
    FixedControl(FixedRegisters),
    GlobalControl,
    GlobalStatus,
    GlobalClear(u64),
    GlobalSet,
    GlobalInUse,
    /// The time-stamp counter.
    Tsc,
    /// Read only.
    Constant(u64),
}

impl P6File {
    pub(super) fn new(registers: &'static P6Registers, width: u32) -> Self {
        let fixed_width = registers.fixed.map_or(0, |fixed| fixed.width);
        debug_assert!(registers.evntsel.count as usize <= GENERAL);
        debug_assert!(registers.fixed.is_none_or(|fixed| fixed.counter.count as usize <= FIXED));
        Self {
            registers,
            general: [const { 0 }; GENERAL].map(|_| Counter::new(width)),
            evntsel: [registers.evntsel_reset; GENERAL],
            fixed: [const { 0 }; FIXED].map(|_| Counter::new(fixed_width)),
            fixed_control: 0,
            global_control: registers.global.map_or(0, |global| global.control_reset),
            global_status: 0,
            pmi: false,
            begun: false,
        }
    }

    /// The first access since reset is on the vCPU's thread, as every other.
    fn begin<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        if !std::mem::replace(&mut self.begun, true) && self.registers.enable == Enable::Always {
            (0..self.general_count()).for_each(|i| self.apply_general(i, context));
        }
    }

    fn find(&self, msr: u32) -> Option<Register> {
        let registers = self.registers;
        if let Some(i) = registers.counter.index_of(msr) {
            return Some(Register::Counter(i as usize, registers.write));
        }
        if let Some(i) = registers.evntsel.index_of(msr) {
            return Some(Register::Evntsel(i as usize));
        }
        if let Some((evntsel, counter)) = registers.alias {
            if let Some(i) = counter.index_of(msr) {
                return Some(Register::Counter(i as usize, registers.write));
            }
            if let Some(i) = evntsel.index_of(msr) {
                return Some(Register::Evntsel(i as usize));
            }
        }
        if let Some(i) = registers.full_width.and_then(|block| block.index_of(msr)) {
            return Some(Register::Counter(i as usize, CounterWrite::FullChecked));
        }
        if let Some(global) = &registers.global {
            match msr {
                _ if msr == global.control => return Some(Register::GlobalControl),
                _ if msr == global.status => return Some(Register::GlobalStatus),
                _ if msr == global.clear => return Some(Register::GlobalClear(global.clear_also)),
                _ if Some(msr) == global.set => return Some(Register::GlobalSet),
                _ if Some(msr) == global.in_use => return Some(Register::GlobalInUse),
                _ => {}
            }
        }
        if let Some(fixed) = registers.fixed {
            if msr == fixed.control {
                return Some(Register::FixedControl(fixed));
            }
            if let Some(i) = fixed.counter.index_of(msr) {
                return Some(Register::Fixed(i as usize, fixed.width));
            }
        }
        if msr == PERF_CAPABILITIES {
            return registers.capabilities.map(Register::Constant);
        }
        if Some(msr) == registers.tsc {
            return Some(Register::Tsc);
        }
        registers
            .constant
            .iter()
            .find(|(number, _)| *number == msr)
            .map(|(_, value)| Register::Constant(*value))
    }

    pub(super) fn read<H: HostPmu>(&mut self, msr: u32, context: &mut Context<'_, H>) -> MsrOutcome {
        let Some(register) = self.find(msr) else { return MsrOutcome::NotHandled };
        self.begin(context);
        MsrOutcome::Value(match register {
            Register::Evntsel(i) => self.evntsel[i],
            Register::Counter(i, _) => self.read_general(i, context),
            Register::Fixed(i, _) => self.read_fixed(i, context),
            Register::FixedControl(_) => self.fixed_control,
            Register::GlobalControl => self.global_control,
            Register::GlobalStatus => {
                self.look(context);
                self.global_status
            }
            Register::GlobalClear(_) | Register::GlobalSet => 0,
            Register::GlobalInUse => self.in_use(),
            Register::Tsc => context.slots().tsc(),
            Register::Constant(value) => value,
        })
    }

    pub(super) fn write<H: HostPmu>(
        &mut self,
        msr: u32,
        value: u64,
        context: &mut Context<'_, H>,
    ) -> MsrOutcome {
        let Some(register) = self.find(msr) else { return MsrOutcome::NotHandled };
        self.begin(context);
        let value = match register {
            Register::GlobalControl | Register::GlobalClear(_) | Register::GlobalSet
                if self.is_forgiving() =>
            {
                value & self.counter_bits()
            }
            Register::GlobalStatus if self.is_forgiving() => return MsrOutcome::Handled,
            _ => value,
        };
        let done = match register {
            Register::Evntsel(i) => self.write_evntsel(i, value, context),
            Register::Counter(i, how) => self.write_general(i, value, how, context),
            Register::Fixed(i, width) => self.write_fixed(i, value, width, context),
            Register::FixedControl(fixed) => self.write_fixed_control(value, fixed.control_valid, context),
            Register::GlobalControl => self.write_global_control(value, context),
            Register::GlobalClear(also) if value & !(self.counter_bits() | also) == 0 => {
                // What wrapped before this write is cleared with it.
                self.look(context);
                self.global_status &= !value;
                true
            }
            Register::GlobalSet if value & !self.counter_bits() == 0 => {
                self.global_status |= value;
                true
            }
            Register::Constant(constant) => value == constant,
            Register::GlobalClear(_)
            | Register::GlobalSet
            | Register::GlobalStatus
            | Register::GlobalInUse
            | Register::Tsc => false,
        };
        if done { MsrOutcome::Handled } else { MsrOutcome::GpFault }
    }

    // Writes of one register each; they say whether it may hold that value.

    fn write_general<H: HostPmu>(
        &mut self,
        i: usize,
        value: u64,
        how: CounterWrite,
        context: &mut Context<'_, H>,
    ) -> bool {
        let Some(value) = written(value, how, self.general[i].width()) else { return false };
        let seen = self.general[i].write(value, context);
        self.note(i as u32, seen);
        true
    }

    fn write_fixed<H: HostPmu>(
        &mut self,
        i: usize,
        value: u64,
        width: u32,
        context: &mut Context<'_, H>,
    ) -> bool {
        let Some(value) = written(value, CounterWrite::FullChecked, width) else { return false };
        let seen = self.fixed[i].write(value, context);
        self.note(i as u32 + FIXED_SHIFT, seen);
        true
    }

    fn write_fixed_control<H: HostPmu>(
        &mut self,
        value: u64,
        valid: u64,
        context: &mut Context<'_, H>,
    ) -> bool {
        if value & !valid != 0 {
            return false;
        }
        let changed = self.fixed_control ^ value;
        context.counts.unchanged += u64::from(changed == 0);
        self.fixed_control = value;
        for i in 0..self.fixed_count() {
            if changed >> (4 * i) & 0xF != 0 {
                self.apply_fixed(i, context);
            }
        }
        true
    }

    fn write_evntsel<H: HostPmu>(&mut self, i: usize, value: u64, context: &mut Context<'_, H>) -> bool {
        let registers = self.registers;
        let mut valid = registers.evntsel_valid;
        if i != 0 {
            valid &= !registers.evntsel_first_only;
        }
        if value & !(valid | registers.evntsel_ignored) != 0 {
            return false;
        }
        let value = value & !registers.evntsel_ignored;
        let changed = self.evntsel[i] ^ value;
        if changed == 0 {
            context.counts.unchanged += 1;
            return true;
        }
        self.evntsel[i] = value;
        if registers.enable == Enable::First && i == 0 && changed & ENABLE != 0 {
            for i in 0..self.general_count() {
                self.apply_general(i, context);
            }
        } else {
            self.apply_general(i, context);
        }
        true
    }

    fn write_global_control<H: HostPmu>(&mut self, value: u64, context: &mut Context<'_, H>) -> bool {
        if value & !self.counter_bits() != 0 {
            return false;
        }
        let changed = self.global_control ^ value;
        context.counts.unchanged += u64::from(changed == 0);
        self.global_control = value;
        for i in 0..self.general_count() {
            if changed >> i & 1 != 0 {
                self.apply_general(i, context);
            }
        }
        for i in 0..self.fixed_count() {
            if changed >> (FIXED_SHIFT as usize + i) & 1 != 0 {
                self.apply_fixed(i, context);
            }
        }
        true
    }

    fn apply_general<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) {
        let enabled = self.general_enabled(i);
        // As it reads while it counts, so that switching it off and on again changes nothing.
        let bit = if self.registers.enable == Enable::Own { ENABLE } else { 0 };
        let select = Select::general(self.evntsel[i] & !self.registers.evntsel_ignored | bit);
        let keep = context.attached_slots() | slots_of_others(self.counters(), i);
        let interrupt = self.evntsel[i] & INT != 0;
        let seen = self.general[i].apply(enabled, select, interrupt, keep, context);
        self.note(i as u32, seen);
    }

    fn apply_fixed<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) {
        let enabled = self.fixed_enabled(i);
        let control = self.fixed_control >> (4 * i) & 0xF;
        let keep = context.attached_slots() | slots_of_others(self.counters(), GENERAL + i);
        let select = Select::fixed(i as u8, control);
        let seen = self.fixed[i].apply(enabled, select, control & FIXED_PMI != 0, keep, context);
        self.note(i as u32 + FIXED_SHIFT, seen);
    }

    /// One that counts at no privilege level is as good as disabled: so is counter 0 of a P6 that is there for counter 1's
    /// sake alone.
    fn general_enabled(&self, i: usize) -> bool {
        let levels = self.evntsel[i] & LEVELS != 0;
        let own = match self.registers.enable {
            Enable::Own => levels && self.evntsel[i] & ENABLE != 0,
            Enable::First => levels && self.evntsel[0] & ENABLE != 0,
            Enable::Always => true,
        };
        own && self.globally_enabled(i as u32)
    }

    fn fixed_enabled(&self, i: usize) -> bool {
        self.fixed_control >> (4 * i) & FIXED_LEVELS != 0 && self.globally_enabled(i as u32 + FIXED_SHIFT)
    }

    /// Whether global registers ignore what they do not have.
    fn is_forgiving(&self) -> bool {
        self.registers.global.is_some_and(|global| global.forgiving)
    }

    fn globally_enabled(&self, bit: u32) -> bool {
        self.registers.global.is_none() || self.global_control >> bit & 1 != 0
    }

    /// A counter was looked at: set its status bit before its interrupt is reported.
    fn note(&mut self, bit: u32, seen: Seen) {
        if self.registers.global.is_some() {
            self.global_status |= u64::from(seen.overflow) << bit;
        }
        self.pmi |= seen.pmi;
    }

    pub(super) fn look<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        for i in 0..self.general_count() {
            self.look_general(i, context);
        }
        for i in 0..self.fixed_count() {
            self.look_fixed(i, context);
        }
    }

    fn look_general<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) {
        let seen = self.general[i].look(context);
        self.note(i as u32, seen);
    }

    fn look_fixed<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) {
        let seen = self.fixed[i].look(context);
        self.note(i as u32 + FIXED_SHIFT, seen);
    }

    pub(super) fn take_pmi(&mut self) -> bool {
        std::mem::take(&mut self.pmi)
    }

    pub(super) fn rdpmc<H: HostPmu>(
        &mut self,
        number: u32,
        fixed: bool,
        context: &mut Context<'_, H>,
    ) -> Option<u64> {
        self.begin(context);
        if fixed {
            let i = Some(number as usize).filter(|&i| i < self.fixed_count())?;
            return Some(self.read_fixed(i, context));
        }
        let Some(i) = number.checked_sub(self.registers.rdpmc_first) else {
            // Below the first counter there is only the TSC of the C3, cut to 40 bits.
            return self.registers.tsc.map(|_| context.slots().tsc() & ((1 << 40) - 1));
        };
        let i = i as usize;
        (i < self.general_count()).then(|| self.read_general(i, context))
    }

    fn read_general<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) -> u64 {
        self.look_general(i, context);
        self.general[i].read(context.slots())
    }

    fn read_fixed<H: HostPmu>(&mut self, i: usize, context: &mut Context<'_, H>) -> u64 {
        self.look_fixed(i, context);
        self.fixed[i].read(context.slots())
    }

    pub(super) fn stop<H: HostPmu>(&mut self, context: &mut Context<'_, H>) {
        self.evntsel = [0; GENERAL];
        self.fixed_control = 0;
        self.global_control = 0;
        self.counters_mut().for_each(|counter| counter.stop(context));
    }

    pub(super) fn enabled<H: HostPmu>(&self, slots: &mut Slots<H>) -> Vec<RegisterCounter> {
        let mut list = Vec::new();
        for i in (0..self.general_count()).filter(|&i| self.general_enabled(i)) {
            list.push(self.general[i].shown(self.registers.rdpmc_first + i as u32, slots));
        }
        for i in (0..self.fixed_count()).filter(|&i| self.fixed_enabled(i)) {
            list.push(self.fixed[i].shown(1 << 30 | i as u32, slots));
        }
        list
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.general.iter().chain(&self.fixed)
    }

    fn counters_mut(&mut self) -> impl Iterator<Item = &mut Counter> {
        self.general.iter_mut().chain(&mut self.fixed)
    }

    fn general_count(&self) -> usize {
        (self.registers.evntsel.count as usize).min(GENERAL)
    }

    fn fixed_count(&self) -> usize {
        self.registers.fixed.map_or(0, |fixed| (fixed.counter.count as usize).min(FIXED))
    }

    /// The bits of the global registers that stand for counters.
    fn counter_bits(&self) -> u64 {
        ((1 << self.general_count()) - 1) | ((1 << self.fixed_count()) - 1) << FIXED_SHIFT
    }

    /// IA32_PERF_GLOBAL_INUSE (SDM volume 3B, 20.2.4.3): selects and fixed controls that are not zero, and bit 63 if
    /// any counter interrupts.
    fn in_use(&self) -> u64 {
        let mut bits = 0;
        for i in 0..self.general_count() {
            bits |= u64::from(self.evntsel[i] & 0xFF != 0) << i;
            bits |= u64::from(self.evntsel[i] & INT != 0) << 63;
        }
        for i in 0..self.fixed_count() {
            let control = self.fixed_control >> (4 * i) & 0xF;
            bits |= u64::from(control & FIXED_LEVELS != 0) << (FIXED_SHIFT as usize + i);
            bits |= u64::from(control & FIXED_PMI != 0) << 63;
        }
        bits
    }
}

/// What a counter of `width` bits holds after `value` was written; `None`: the write faults.
fn written(value: u64, how: CounterWrite, width: u32) -> Option<u64> {
    match how {
        CounterWrite::SignExtended32 => Some(value as i32 as i64 as u64),
        CounterWrite::FullChecked if value.checked_shr(width).unwrap_or(0) != 0 => None,
        CounterWrite::Full | CounterWrite::FullChecked => Some(value),
    }
}
