//! The registers of one virtual CPU, seen as its guest sees them.

use std::collections::BTreeMap;

use vpmu::sim::Work;

use super::register_layout::{Layout, Selects, Write};
use super::select::{CCCR_OVF, ENABLE, INT, Key, fixed_key};
use super::{ONE_INSTRUCTION, Register, What, counted};

#[derive(Clone, Debug)]
pub struct Processor {
    pub layout: &'static Layout,
    pub select: Vec<u64>,
    pub general: Vec<Register>,
    pub fixed_control: u64,
    pub fixed: Vec<Register>,
    pub global_control: u64,
    pub global_status: u64,
    /// Overflows whose interrupt has not been given.
    pub due: u64,
    /// Everything the registers ever counted.
    pub totals: BTreeMap<Key, u64>,
    /// Something that could interrupt has been switched on.
    pub interrupts_ever: bool,
    pub tsc: u64,
    /// A select was written. Before that counters that cannot be switched off stand still too; those of the C3 until any
    /// register was accessed.
    selected: bool,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Done,
    Faults,
    /// No such register.
    Unknown,
}

impl Processor {
    pub fn new(layout: &'static Layout) -> Self {
        let fixed = layout.fixed.map_or(0, |fixed| fixed.counters.count as usize);
        Self {
            layout,
            select: vec![layout.select_reset; layout.counters],
            general: vec![Register::new(0, layout.width); layout.counters],
            fixed_control: 0,
            fixed: vec![Register::new(0, layout.fixed.map_or(1, |fixed| fixed.width)); fixed],
            global_control: layout.global.map_or(0, |global| global.reset),
            global_status: 0,
            due: 0,
            totals: BTreeMap::new(),
            interrupts_ever: false,
            tsc: 0,
            selected: false,
        }
    }

    /// As after reset; what was counted stays counted.
    pub fn reset(&mut self) {
        *self = Self { totals: std::mem::take(&mut self.totals), tsc: self.tsc, ..Self::new(self.layout) };
    }

    /// A register of this processor was accessed.
    pub fn touch(&mut self) {
        self.selected |= self.layout.layout == Selects::Event;
    }

    fn globally_on(&self, bit: usize) -> bool {
        self.layout.global.is_none() || self.global_control >> bit & 1 == 1
    }

    pub fn general_on(&self, i: usize) -> bool {
        self.layout.switched_on(i, &self.select) && self.globally_on(i)
    }

    /// One that P6's select enables at no privilege level is as good as off.
    fn general_shown(&self, i: usize) -> bool {
        let p6 = matches!(self.layout.layout, Selects::Each | Selects::First);
        self.general_on(i) && (!p6 || self.select[i] >> 16 & 3 != 0)
    }

    pub fn fixed_on(&self, i: usize) -> bool {
        self.fixed_control >> (4 * i) & 3 != 0 && self.globally_on(32 + i)
    }

    pub fn execute(&mut self, work: &Work) {
        self.tsc += work.tsc;
        self.count(work, |_, _, _| true, |_| true);
    }

    /// The hypervisor has executed one instruction of the guest's kernel.
    pub fn emulated(&mut self) {
        self.count(&ONE_INSTRUCTION, Layout::counts_each_instruction, |what| what == What::Instructions);
    }

    fn count(
        &mut self,
        work: &Work,
        general: impl Fn(&Layout, usize, u64) -> bool,
        fixed: impl Fn(What) -> bool,
    ) {
        let layout = self.layout;
        for i in 0..self.general.len() {
            let select = self.select[i];
            let on = self.selected && self.general_on(i);
            let on = on && general(layout, i, select);
            let Some((what, times)) = layout.event(i, select).filter(|_| on) else { continue };
            let (usr, os) = layout.levels(i, select);
            let count = counted(what, usr, os, times, work);
            *self.totals.entry(layout.key(i, select)).or_default() += count;
            let wraps = self.general[i].count(count);
            self.wrapped(i, wraps, layout.interrupts(select));
            if layout.layout == Selects::Cccr && wraps != 0 {
                self.select[i] |= CCCR_OVF;
            }
        }
        for i in 0..self.fixed.len() {
            let control = self.fixed_control >> (4 * i) & 0xF;
            let what = layout.fixed.unwrap().what[i];
            let Some(what) = what.filter(|what| self.fixed_on(i) && fixed(*what)) else { continue };
            let count = counted(what, control & 2 != 0, control & 1 != 0, 1, work);
            *self.totals.entry(fixed_key(i as u64, control & 3)).or_default() += count;
            let wraps = self.fixed[i].count(count);
            self.wrapped(32 + i, wraps, control & 8 != 0);
        }
    }

    fn wrapped(&mut self, bit: usize, wraps: u64, interrupt: bool) {
        self.interrupts_ever |= interrupt;
        if wraps == 0 {
            return;
        }
        if self.layout.global.is_some() {
            self.global_status |= 1 << bit;
        }
        self.due += u64::from(interrupt);
    }

    fn counter_bits(&self) -> u64 {
        ((1 << self.general.len()) - 1) | (((1 << self.fixed.len()) - 1) << 32)
    }

    /// The one register of P5's selects.
    fn halves(&self) -> u64 {
        self.select.iter().rev().fold(0, |all, half| all << 16 | half)
    }

    pub fn read(&self, msr: u32) -> Result<u64, Access> {
        let layout = self.layout;
        if let Some(i) = layout.selects.iter().find_map(|row| row.find(msr)) {
            return Ok(if layout.halves() { self.halves() } else { self.select[i] });
        }
        if let Some(i) = layout.values.iter().find_map(|(row, _)| row.find(msr)) {
            return Ok(self.general[i].bits());
        }
        if let Some(fixed) = layout.fixed {
            if msr == fixed.control {
                return Ok(self.fixed_control);
            }
            if let Some(i) = fixed.counters.find(msr) {
                return Ok(self.fixed[i].bits());
            }
        }
        match layout.global {
            _ if Some(msr) == layout.tsc => Ok(self.tsc),
            Some(global) if msr == global.control => Ok(self.global_control),
            Some(global) if msr == global.status => Ok(self.global_status),
            Some(global) if msr == global.clear || Some(msr) == global.set => Ok(0),
            Some(global) if Some(msr) == global.in_use => Ok(self.in_use()),
            _ => {
                let constant = layout.constants.iter().find(|(at, _)| *at == msr);
                constant.map(|(_, value)| *value).ok_or(Access::Unknown)
            }
        }
    }

    fn in_use(&self) -> u64 {
        let mut bits = 0;
        for (i, select) in self.select.iter().enumerate() {
            bits |= u64::from(select & 0xFF != 0) << i | u64::from(select & INT != 0) << 63;
        }
        for i in 0..self.fixed.len() {
            let control = self.fixed_control >> (4 * i);
            bits |= u64::from(control & 3 != 0) << (32 + i) | u64::from(control & 8 != 0) << 63;
        }
        bits
    }

    pub fn rdpmc(&mut self, number: u32, fixed: bool) -> Option<&mut Register> {
        let first = if fixed { 0 } else { self.layout.rdpmc_first? };
        let counters = if fixed { &mut self.fixed } else { &mut self.general };
        counters.get_mut(number.checked_sub(first)? as usize)
    }

    pub fn write(&mut self, msr: u32, value: u64) -> Access {
        let layout = self.layout;
        if let Some(i) = layout.selects.iter().find_map(|row| row.find(msr)) {
            return self.write_select(i, value);
        }
        if let Some((i, write)) = layout.values.iter().find_map(|(row, write)| Some((row.find(msr)?, *write)))
        {
            return write_counter(&mut self.general[i], value, write);
        }
        if let Some(fixed) = layout.fixed {
            if msr == fixed.control {
                if value & !fixed.control_valid != 0 {
                    return Access::Faults;
                }
                self.fixed_control = value;
                return Access::Done;
            }
            if let Some(i) = fixed.counters.find(msr) {
                return write_counter(&mut self.fixed[i], value, Write::Exact);
            }
        }
        if layout.tsc == Some(msr) {
            return Access::Faults;
        }
        if let Some((_, constant)) = layout.constants.iter().find(|(at, _)| *at == msr) {
            return if value == *constant { Access::Done } else { Access::Faults };
        }
        self.write_global(msr, value)
    }

    fn write_select(&mut self, i: usize, value: u64) -> Access {
        let layout = self.layout;
        if layout.halves() {
            let halves = [value & 0xFFFF, value >> 16];
            if halves.iter().any(|half| half & !layout.select_valid != 0) {
                return Access::Faults;
            }
            self.select.copy_from_slice(&halves);
            self.selected = true;
            return Access::Done;
        }
        // The P6 has one enable bit, and it is in the first select.
        let absent = if layout.layout == Selects::First && i != 0 { ENABLE } else { 0 };
        if value & !(layout.select_valid & !absent | layout.select_ignored) != 0 {
            return Access::Faults;
        }
        self.select[i] = value & !layout.select_ignored;
        self.selected = true;
        Access::Done
    }

    fn write_global(&mut self, msr: u32, value: u64) -> Access {
        let Some(global) = self.layout.global else { return Access::Unknown };
        if msr == global.status || Some(msr) == global.in_use {
            return if global.forgiving { Access::Done } else { Access::Faults };
        }
        if msr != global.control && msr != global.clear && Some(msr) != global.set {
            return Access::Unknown;
        }
        let extra = if msr == global.clear { global.clear_also } else { 0 };
        let bits = self.counter_bits();
        if value & !(bits | extra) != 0 && !global.forgiving {
            return Access::Faults;
        }
        let value = value & bits;
        if msr == global.control {
            self.global_control = value;
        } else if msr == global.clear {
            self.global_status &= !value;
        } else {
            self.global_status |= value;
        }
        Access::Done
    }
}

fn write_counter(counter: &mut Register, value: u64, write: Write) -> Access {
    let fits = value < 1 << counter.width;
    *counter = match write {
        Write::Low32 => super::sign_extended(value as i32, counter.width),
        Write::All => Register::new(value, counter.width),
        Write::Exact if fits => Register::new(value, counter.width),
        Write::Exact => return Access::Faults,
    };
    Access::Done
}

/// What the tests look at.
impl Processor {
    /// The counters that are switched on, by RDPMC's numbers.
    pub fn counting(&self) -> impl Iterator<Item = (u32, &Register)> {
        let first = self.layout.rdpmc_first.unwrap_or(0);
        let general = self.general.iter().enumerate().filter(|(i, _)| self.general_shown(*i));
        let fixed = self.fixed.iter().enumerate().filter(|(i, _)| self.fixed_on(*i));
        general
            .map(move |(i, counter)| (first + i as u32, counter))
            .chain(fixed.map(|(i, counter)| (0x4000_0000 | i as u32, counter)))
    }

    /// The counter behind an address.
    pub fn register(&mut self, msr: u32) -> Option<&mut Register> {
        let layout = self.layout;
        match layout.values.iter().find_map(|(row, _)| row.find(msr)) {
            Some(i) => Some(&mut self.general[i]),
            None => Some(&mut self.fixed[layout.fixed?.counters.find(msr)?]),
        }
    }

    /// Whether a register depends on what is counted.
    pub fn counts(&mut self, msr: u32) -> bool {
        let layout = self.layout;
        let overflows = layout.layout == Selects::Cccr && layout.selects[0].find(msr).is_some();
        overflows
            || self.register(msr).is_some()
            || self.layout.global.is_some_and(|global| global.status == msr)
    }

    /// The end of a VM: selects are cleared.
    pub fn stop(&mut self) {
        self.select.fill(0);
        self.selected = false;
        (self.fixed_control, self.global_control) = (0, 0);
    }
}
