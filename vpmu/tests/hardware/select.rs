//! What a select says.

use super::What;
use super::register_layout::{ESCRS, Escr, Layout, Selects, escr_levels};

pub const ENABLE: u64 = 1 << 22;
pub const INT: u64 = 1 << 20;
pub const OS: u64 = 1 << 17;
pub const USR: u64 = 1 << 16;
/// Event, unit mask, edge, invert, counter mask.
const WHAT: u64 = 0xFFFF | 1 << 18 | 1 << 23 | 0xFF00_0000;
/// Where AMD has the upper bits of an event.
const EVENT_HIGH: u64 = 0xF << 32;
/// Pin control, which says nothing of counting.
const PIN: u64 = 1 << 9;

/// Of a CCCR: enable, both kinds of threads active, interrupt, overflow.
const CCCR_ENABLE: u64 = 1 << 12;
const CCCR_ACTIVE: u64 = 3 << 16;
const CCCR_INT: u64 = 1 << 26;
pub const CCCR_OVF: u64 = 1 << 31;
/// Compare, edge, force overflow: nothing on the host does that.
const CCCR_MODIFIERS: u64 = 1 << 18 | 1 << 24 | 1 << 25;

/// What a total of the host's is kept under: a general event with its privilege levels, or (from bit 32 on) a fixed
/// counter's number and levels.
pub type Key = u64;

pub fn fixed_key(number: u64, levels: u64) -> Key {
    (number + 1) << 32 | levels
}

/// The ESCR of counter `i` with ESCR SELECT `selected`, if it is one of those that are set up.
fn escr_of(i: usize, selected: u64) -> Option<&'static Escr> {
    let number = match (i, selected) {
        (0 | 1, 6) => 0x3A2,
        (2 | 3, 6) => 0x3A3,
        (12 | 13 | 16, 4) => 0x3B8,
        (12 | 13 | 16, 5) => 0x3CC,
        (14 | 15 | 17, 4) => 0x3B9,
        (14 | 15 | 17, 5) => 0x3CD,
        _ => return None,
    };
    ESCRS.iter().find(|escr| escr.number == number)
}

/// A key for P4: what is counted depends on the counter, its ESCR SELECT and the ESCR's levels.
pub fn cccr_key(i: usize, cccr: u64, levels: u64) -> Key {
    1 << 50 | levels << 16 | (i as u64) << 8 | cccr >> 13 & 7
}

impl Layout {
    /// Whether a select is half of a register.
    pub fn halves(&self) -> bool {
        matches!(self.layout, Selects::Halves | Selects::BareHalves)
    }

    /// A select for `event`, with the bits that P6 has for levels and switches.
    pub fn compose(&self, event: u64, bits: u64) -> u64 {
        match self.layout {
            Selects::Each | Selects::First => event | bits & (USR | OS | INT | ENABLE),
            Selects::Event | Selects::BareHalves => event,
            Selects::Halves => event | (bits >> 17 & 1) << 6 | (bits >> 16 & 1) << 7,
            Selects::Cccr => event << 13 | CCCR_ACTIVE | self.turned(bits),
        }
    }

    /// The same bits alone, for turning over in a select.
    pub fn turned(&self, bits: u64) -> u64 {
        match self.layout {
            Selects::Halves | Selects::BareHalves => bits >> 10 & 0xC0,
            Selects::Cccr => {
                let enable = if bits & ENABLE != 0 { CCCR_ENABLE } else { 0 };
                enable | if bits & INT != 0 { CCCR_INT } else { 0 }
            }
            _ => bits,
        }
    }

    /// The privilege levels of counter `i`: user, system.
    pub fn levels(&self, i: usize, select: u64) -> (bool, bool) {
        match self.layout {
            Selects::Each | Selects::First => (select & USR != 0, select & OS != 0),
            Selects::Event | Selects::BareHalves => (true, true),
            Selects::Halves => (select & 0x80 != 0, select & 0x40 != 0),
            Selects::Cccr => escr_of(i, select >> 13 & 7).map_or((false, false), |escr| (escr.usr, escr.os)),
        }
    }

    /// Whether the select of counter `i` switches it on.
    pub fn switched_on(&self, i: usize, selects: &[u64]) -> bool {
        match self.layout {
            Selects::Each => selects[i] & ENABLE != 0,
            Selects::First => selects[0] & ENABLE != 0,
            Selects::Event | Selects::BareHalves => true,
            Selects::Halves => selects[i] & 0xC0 != 0,
            // The one thread there is counts as a single active one.
            Selects::Cccr => selects[i] & CCCR_ENABLE != 0 && selects[i] >> 16 & 1 != 0,
        }
    }

    pub fn interrupts(&self, select: u64) -> bool {
        match self.layout {
            Selects::Each | Selects::First => select & INT != 0,
            Selects::Cccr => select & CCCR_INT != 0,
            _ => false,
        }
    }

    /// What counter `i` counts, and how often.
    pub fn event(&self, i: usize, select: u64) -> Option<(What, u64)> {
        let find = |bits| self.events.iter().find(|event| event.0 == bits)?.1;
        match self.layout {
            // The simulated host knows no other modifiers than unit masks.
            _ if self.native => Some((find(select & 0xFF)?, (select >> 8 & 0xFF) + 1)),
            Selects::Each | Selects::First => {
                Some((find(select & (WHAT | EVENT_HIGH & self.select_valid))?, 1))
            }
            Selects::Halves => Some((find(select & !(PIN | 0xC0))?, 1)),
            Selects::Event | Selects::BareHalves => Some((find(select & self.select_valid)?, 1)),
            Selects::Cccr if select & CCCR_MODIFIERS != 0 => None,
            Selects::Cccr => Some((escr_of(i, select >> 13 & 7)?.what, 1)),
        }
    }

    /// Whether counter `i` counts instructions whatever the processor does at the same time: those too that the hypervisor
    /// executes in the guest's place.
    pub fn counts_each_instruction(&self, i: usize, select: u64) -> bool {
        let modified = self.native && select & (WHAT | 0xF << 32) & !0xFF != 0;
        !modified && matches!(self.event(i, select), Some((What::Instructions, _)))
    }

    /// The part that says what counter `i` counts.
    pub fn key(&self, i: usize, select: u64) -> Key {
        match self.layout {
            Selects::Each | Selects::First => select & (0xFFFF | USR | OS),
            Selects::Cccr => {
                let (usr, os) = self.levels(i, select);
                cccr_key(i, select, escr_levels(usr, os))
            }
            _ => select & self.select_valid & !PIN,
        }
    }
}
