//! Processors' registers, written down a second time from their manuals.

use super::What;

/// Registers at regular distances.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub first: u32,
    pub step: u32,
    pub count: u32,
}

impl Row {
    pub fn find(&self, msr: u32) -> Option<usize> {
        (0..self.count).find(|i| self.first + i * self.step == msr).map(|i| i as usize)
    }
}

/// What a write to a counter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// 32 bits, sign-extended.
    Low32,
    /// All bits there are.
    All,
    /// The same; a bit too many faults.
    Exact,
}

/// Where a counter is switched on, besides the global register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// In its own select.
    Each,
    /// In the first select.
    First,
    /// Nowhere.
    None,
}

/// An event: the bits of its select, what it counts and how often it counts it.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub bits: u32,
    /// `None`: the simulated host has nothing like it.
    pub what: Option<What>,
    pub times: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    pub control: u32,
    pub control_valid: u64,
    pub counters: Row,
    pub width: u32,
    /// What each counts.
    pub what: &'static [Option<What>],
}

#[derive(Clone, Copy, Debug)]
pub struct Global {
    pub control: u32,
    pub reset: u64,
    pub status: u32,
    pub clear: u32,
    pub clear_also: u64,
    pub set: Option<u32>,
}

#[derive(Debug)]
pub struct Layout {
    /// As `--pmu` calls it.
    pub name: &'static str,
    pub width: u32,
    pub counters: usize,
    /// Rows of selects and of counters; all rows show the same registers.
    pub selects: &'static [Row],
    pub values: &'static [(Row, Write)],
    pub select_valid: u64,
    pub switch: Switch,
    pub fixed: Option<Fixed>,
    pub global: Option<Global>,
    pub rdpmc_first: u32,
    pub events: &'static [Event],
    /// Most counters of one perfctr control, and whether they can interrupt.
    pub perfctr: (usize, bool),
}

const fn event(bits: u32, what: What, times: u64) -> Event {
    Event { bits, what: Some(what), times }
}

/// The simulated host is an AMD processor and gets these as they are, unit masks included; the last it has not.
const AMD_EVENTS: &[Event] = &[
    event(0xC0, What::Instructions, 1),
    event(0xC2, What::Branches, 1),
    event(0x76, What::Cycles, 1),
    event(0xC3, What::Mispredicted, 1),
    event(0x01C0, What::Instructions, 2),
    event(0x02C0, What::Instructions, 3),
    event(0x03C2, What::Branches, 4),
    event(0x0176, What::Cycles, 2),
    Event { bits: 0x41, what: None, times: 0 },
];

const K7: Layout = Layout {
    name: "k7",
    width: 48,
    counters: 4,
    selects: &[Row { first: 0xC001_0000, step: 1, count: 4 }],
    values: &[(Row { first: 0xC001_0004, step: 1, count: 4 }, Write::All)],
    select_valid: 0xFFD7_FFFF,
    switch: Switch::Each,
    fixed: None,
    global: None,
    rdpmc_first: 0,
    events: AMD_EVENTS,
    perfctr: (4, true),
};

pub static LAYOUTS: &[Layout] = &[K7, Layout { name: "k8", ..K7 }];
