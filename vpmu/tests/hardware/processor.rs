//! The registers of one virtual CPU, seen as its guest sees them.

use std::collections::BTreeMap;

use vpmu::sim::Work;

use super::layout::{Event, Layout, Switch, Write};
use super::{Register, counted};

pub const ENABLE: u64 = 1 << 22;
pub const INT: u64 = 1 << 20;
pub const OS: u64 = 1 << 17;
pub const USR: u64 = 1 << 16;

/// What a total of the host's is kept under: a general event with its privilege levels, or (from bit 32 on) a fixed
/// counter's number and levels.
pub type Key = u64;

pub fn fixed_key(number: u64, levels: u64) -> Key {
    (number + 1) << 32 | levels
}

/// A part of the general select that says what is counted.
pub const KEY: u64 = 0xFFFF | USR | OS;

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
            select: vec![0; layout.counters],
            general: vec![Register::new(0, layout.width); layout.counters],
            fixed_control: 0,
            fixed: vec![Register::new(0, layout.fixed.map_or(1, |fixed| fixed.width)); fixed],
            global_control: layout.global.map_or(0, |global| global.reset),
            global_status: 0,
            due: 0,
            totals: BTreeMap::new(),
            interrupts_ever: false,
        }
    }

    /// As after reset; what was counted stays counted.
    pub fn reset(&mut self) {
        *self = Self { totals: std::mem::take(&mut self.totals), ..Self::new(self.layout) };
    }

    pub fn event(layout: &Layout, select: u64) -> Option<&Event> {
        layout.events.iter().find(|event| u64::from(event.bits) == select & 0xFFFF)
    }

    fn globally_on(&self, bit: usize) -> bool {
        self.layout.global.is_none() || self.global_control >> bit & 1 == 1
    }

    pub fn general_on(&self, i: usize) -> bool {
        let switch = match self.layout.switch {
            Switch::Each => self.select[i] & ENABLE != 0,
            Switch::First => self.select[0] & ENABLE != 0,
            Switch::None => true,
        };
        switch && self.globally_on(i)
    }

    pub fn fixed_on(&self, i: usize) -> bool {
        self.fixed_control >> (4 * i) & 3 != 0 && self.globally_on(32 + i)
    }

    pub fn execute(&mut self, work: &Work) {
        for i in 0..self.general.len() {
            let select = self.select[i];
            let Some(Event { what: Some(what), times, .. }) = Self::event(self.layout, select) else {
                continue;
            };
            if !self.general_on(i) {
                continue;
            }
            let count = counted(*what, select & USR != 0, select & OS != 0, *times, work);
            *self.totals.entry(select & KEY).or_default() += count;
            let wraps = self.general[i].count(count);
            self.wrapped(i, wraps, select & INT != 0);
        }
        for i in 0..self.fixed.len() {
            let control = self.fixed_control >> (4 * i) & 0xF;
            let Some(what) = self.layout.fixed.unwrap().what[i] else { continue };
            if !self.fixed_on(i) {
                continue;
            }
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

    pub fn read(&self, msr: u32) -> Result<u64, Access> {
        let layout = self.layout;
        if let Some(i) = layout.selects.iter().find_map(|row| row.find(msr)) {
            return Ok(self.select[i]);
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
            Some(global) if msr == global.control => Ok(self.global_control),
            Some(global) if msr == global.status => Ok(self.global_status),
            Some(global) if msr == global.clear || Some(msr) == global.set => Ok(0),
            _ => Err(Access::Unknown),
        }
    }

    pub fn rdpmc(&mut self, number: u32, fixed: bool) -> Option<&mut Register> {
        let first = if fixed { 0 } else { self.layout.rdpmc_first };
        let counters = if fixed { &mut self.fixed } else { &mut self.general };
        counters.get_mut(number.checked_sub(first)? as usize)
    }

    pub fn write(&mut self, msr: u32, value: u64) -> Access {
        let layout = self.layout;
        if let Some(i) = layout.selects.iter().find_map(|row| row.find(msr)) {
            // The P6 has one enable bit, and it is in the first select.
            let absent = if layout.switch == Switch::First && i != 0 { ENABLE } else { 0 };
            if value & !(layout.select_valid & !absent) != 0 {
                return Access::Faults;
            }
            self.select[i] = value;
            return Access::Done;
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
        let Some(global) = layout.global else { return Access::Unknown };
        let extra = if msr == global.clear { global.clear_also } else { 0 };
        let faults = value & !(self.counter_bits() | extra) != 0;
        let target = match msr {
            _ if msr == global.status => return Access::Faults,
            _ if msr == global.control || msr == global.clear || Some(msr) == global.set => msr,
            _ => return Access::Unknown,
        };
        if faults {
            return Access::Faults;
        }
        if target == global.control {
            self.global_control = value;
        } else if target == global.clear {
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
        let first = self.layout.rdpmc_first;
        let general = self.general.iter().enumerate().filter(|(i, _)| self.general_on(*i));
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
        self.register(msr).is_some() || self.layout.global.is_some_and(|global| global.status == msr)
    }

    /// The end of a VM: selects are cleared.
    pub fn stop(&mut self) {
        self.select.fill(0);
        (self.fixed_control, self.global_control) = (0, 0);
    }
}
