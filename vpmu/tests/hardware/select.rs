//! What a select says.

use super::What;
use super::layout::{Layout, Selects};

pub const ENABLE: u64 = 1 << 22;
pub const INT: u64 = 1 << 20;
pub const OS: u64 = 1 << 17;
pub const USR: u64 = 1 << 16;
/// Event, unit mask, edge, invert, counter mask.
const WHAT: u64 = 0xFFFF | 1 << 18 | 1 << 23 | 0xFF00_0000;
/// Pin control, which says nothing of counting.
const PIN: u64 = 1 << 9;

/// What a total of the host's is kept under: a general event with its privilege levels, or (from bit 32 on) a fixed
/// counter's number and levels.
pub type Key = u64;

pub fn fixed_key(number: u64, levels: u64) -> Key {
    (number + 1) << 32 | levels
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
        }
    }

    /// The privilege levels: user, system.
    pub fn levels(&self, select: u64) -> (bool, bool) {
        match self.layout {
            Selects::Each | Selects::First => (select & USR != 0, select & OS != 0),
            Selects::Event | Selects::BareHalves => (true, true),
            Selects::Halves => (select & 0x80 != 0, select & 0x40 != 0),
        }
    }

    pub fn interrupts(&self, select: u64) -> bool {
        matches!(self.layout, Selects::Each | Selects::First) && select & INT != 0
    }

    /// What is counted, and how often.
    pub fn event(&self, select: u64) -> Option<(What, u64)> {
        let find = |bits| self.events.iter().find(|event| event.0 == bits)?.1;
        match self.layout {
            // The simulated host knows no other modifiers than unit masks.
            _ if self.native => Some((find(select & 0xFF)?, (select >> 8 & 0xFF) + 1)),
            Selects::Each | Selects::First => Some((find(select & WHAT)?, 1)),
            Selects::Halves => Some((find(select & !(PIN | 0xC0))?, 1)),
            Selects::Event | Selects::BareHalves => Some((find(select)?, 1)),
        }
    }

    /// The part that says what is counted.
    pub fn key(&self, select: u64) -> Key {
        match self.layout {
            Selects::Each | Selects::First => select & (0xFFFF | USR | OS),
            _ => select & !PIN,
        }
    }
}
