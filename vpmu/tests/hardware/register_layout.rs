//! Processors' registers, written down a second time from their manuals.

use vpmu::HostFamily;

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

    pub fn at(&self, i: usize) -> u32 {
        self.first + (i as u32 % self.count) * self.step
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

/// How selects are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selects {
    /// P6's, each with its enable bit.
    Each,
    /// P6's, with one enable bit in the first.
    First,
    /// An event and nothing else: it always counts, at every level (VIA C3).
    Event,
    /// Halves of one register, with privilege levels (P5).
    Halves,
    /// The same without levels (WinChip).
    BareHalves,
    /// P4's CCCRs; what the ESCRs say is [`Layout::setup`].
    Cccr,
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
    /// Bits that may be cleared besides the counters'.
    pub clear_also: u64,
    pub set: Option<u32>,
    pub in_use: Option<u32>,
    /// What does not exist is ignored and does not fault.
    pub forgiving: bool,
}

#[derive(Debug)]
pub struct Layout {
    /// As `--pmu` calls it.
    pub name: &'static str,
    pub width: u32,
    pub counters: usize,
    pub layout: Selects,
    /// Rows of selects and of counters; all rows show the same registers.
    pub selects: &'static [Row],
    pub values: &'static [(Row, Write)],
    pub select_valid: u64,
    pub select_ignored: u64,
    /// What selects hold after reset.
    pub select_reset: u64,
    pub fixed: Option<Fixed>,
    pub global: Option<Global>,
    /// `None`: the processor has no RDPMC.
    pub rdpmc_first: Option<u32>,
    /// Events: bits of a select, and what they count; `None`: the simulated host has nothing like it.
    pub events: &'static [(u64, Option<What>)],
    /// The host. Its events are the simulated host's.
    pub host: HostFamily,
    /// The host is of the same generation: it gets events with their unit masks.
    pub native: bool,
    /// Registers that the guest has written before anything else and leaves alone.
    pub setup: &'static [(u32, u64)],
    /// Most counters of one perfctr control, and whether they can interrupt.
    pub perfctr: (usize, bool),
    /// Whether perfctr samples the time-stamp counter.
    pub rdtsc: bool,
    /// A second address of it; RDPMC 0 is then another.
    pub tsc: Option<u32>,
    /// Read only.
    pub constants: &'static [(u32, u64)],
}

/// The simulated host is an AMD processor; unit masks multiply. The last it has not.
const AMD_EVENTS: &[(u64, Option<What>)] = &[
    (0xC0, Some(What::Instructions)),
    (0xC2, Some(What::Branches)),
    (0x76, Some(What::Cycles)),
    (0xC3, Some(What::Mispredicted)),
    (0x01C0, Some(What::Instructions)),
    (0x02C0, Some(What::Instructions)),
    (0x03C2, Some(What::Branches)),
    (0x0176, Some(What::Cycles)),
    (0x41, None),
];
/// Those that a host of another generation has too.
const AMD_EVENTS_ELSEWHERE: &[(u64, Option<What>)] = &[
    (0xC0, Some(What::Instructions)),
    (0xC2, Some(What::Branches)),
    (0x76, Some(What::Cycles)),
    (0xC3, Some(What::Mispredicted)),
    (0x01C0, None),
];
const P6_EVENTS: &[(u64, Option<What>)] = &[
    (0xC0, Some(What::Instructions)),
    (0xC4, Some(What::Branches)),
    (0x79, Some(What::Cycles)),
    (0xC5, Some(What::Mispredicted)),
    (0x43, None),
];
const INTEL_EVENTS: &[(u64, Option<What>)] = &[
    (0xC0, Some(What::Instructions)),
    (0xC4, Some(What::Branches)),
    (0x3C, Some(What::Cycles)),
    (0xC5, Some(What::Mispredicted)),
    (0x412E, None),
];
const P5_EVENTS: &[(u64, Option<What>)] =
    &[(0x16, Some(What::Instructions)), (0x12, Some(What::Branches)), (0x03, None)];

const fn row(first: u32, step: u32, count: u32) -> Row {
    Row { first, step, count }
}

/// 26094 (BKDG of family 0Fh), chapter 10. AMD ignores bits that do not exist.
const K7: Layout = Layout {
    name: "k7",
    width: 48,
    counters: 4,
    layout: Selects::Each,
    selects: &[row(0xC001_0000, 1, 4)],
    values: &[(row(0xC001_0004, 1, 4), Write::All)],
    select_valid: 0xFFDF_FFFF,
    select_ignored: !0xFFDF_FFFF,
    select_reset: 0,
    fixed: None,
    global: None,
    rdpmc_first: Some(0),
    events: AMD_EVENTS,
    host: HostFamily::K7,
    native: true,
    setup: &[],
    perfctr: (4, true),
    rdtsc: true,
    tsc: None,
    constants: &[],
};
const FAM10H: Layout = Layout {
    name: "fam10h",
    select_valid: 0xF_FFD7_FFFF,
    select_ignored: !0xF_FFD7_FFFF,
    host: HostFamily::Fam10h,
    ..K7
};
/// APM volume 2, 13.2.
const AMD_CORE: Layout = Layout {
    name: "amd-core",
    counters: 6,
    selects: &[row(0xC001_0200, 2, 6), row(0xC001_0000, 1, 4)],
    values: &[(row(0xC001_0201, 2, 6), Write::All), (row(0xC001_0004, 1, 4), Write::All)],
    host: HostFamily::Zen2,
    ..FAM10H
};
const AMD_V2: Layout = Layout {
    name: "amd-v2",
    global: Some(Global {
        control: 0xC000_0301,
        reset: 0x3F,
        status: 0xC000_0300,
        clear: 0xC000_0302,
        clear_also: 0,
        set: Some(0xC000_0303),
        in_use: None,
        forgiving: true,
    }),
    host: HostFamily::Zen4,
    ..AMD_CORE
};

/// SDM volume 3B, 20.6.7.
const P6: Layout = Layout {
    name: "p6",
    width: 40,
    counters: 2,
    layout: Selects::First,
    selects: &[row(0x186, 1, 2)],
    values: &[(row(0xC1, 1, 2), Write::Low32)],
    select_valid: 0xFFDF_FFFF,
    select_ignored: 0,
    events: P6_EVENTS,
    host: HostFamily::Amd,
    native: false,
    perfctr: (2, true),
    ..K7
};

/// SDM volume 3B, 20.2.
const V1: Layout = Layout { name: "intel-v1", layout: Selects::Each, events: INTEL_EVENTS, ..P6 };
const FIXED: Fixed = Fixed {
    control: 0x38D,
    control_valid: 0xBBB,
    counters: row(0x309, 1, 3),
    width: 40,
    // Reference cycles are not among the simulated host's events.
    what: &[Some(What::Instructions), Some(What::Cycles), None],
};
const GLOBAL: Global = Global {
    control: 0x38F,
    reset: 3,
    status: 0x38E,
    clear: 0x390,
    clear_also: 3 << 62,
    set: None,
    in_use: None,
    forgiving: false,
};
const V2: Layout = Layout { name: "intel-v2", fixed: Some(FIXED), global: Some(GLOBAL), ..V1 };
const V3: Layout = Layout {
    name: "intel-v3",
    width: 48,
    counters: 4,
    selects: &[row(0x186, 1, 4)],
    values: &[(row(0xC1, 1, 4), Write::Low32), (row(0x4C1, 1, 4), Write::Exact)],
    select_valid: 0xFFFF_FFFF,
    fixed: Some(Fixed { control_valid: 0xFFF, width: 48, ..FIXED }),
    global: Some(Global { reset: 0xF, clear_also: 7 << 61, ..GLOBAL }),
    perfctr: (4, true),
    constants: &[(0x345, 1 << 13)],
    ..V2
};
const GLOBAL_V4: Global =
    Global { reset: 0xF, clear_also: 0x3F << 58 | 1 << 55, set: Some(0x391), in_use: Some(0x392), ..GLOBAL };
const V4: Layout = Layout { name: "intel-v4", global: Some(GLOBAL_V4), ..V3 };
const V5: Layout = Layout {
    name: "intel-v5",
    counters: 8,
    selects: &[row(0x186, 1, 8)],
    values: &[(row(0xC1, 1, 8), Write::Low32), (row(0x4C1, 1, 8), Write::Exact)],
    select_valid: 0xFFDF_FFFF,
    fixed: Some(Fixed { width: 48, ..FIXED }),
    global: Some(Global { reset: 0xFF, ..GLOBAL_V4 }),
    ..V4
};

/// Its datasheet, appendix A. What EVNTSEL1 holds after boot is in perfctr's driver alone: `wrmsr(MSR_P6_EVNTSEL0+1,
/// 0x00070079)`, "Not documented, but seems to be default after boot".
const C3: Layout = Layout {
    name: "c3",
    width: 32,
    counters: 1,
    layout: Selects::Event,
    selects: &[row(0x187, 1, 1)],
    values: &[(row(0xC2, 1, 1), Write::All)],
    select_valid: 0x1FF,
    select_ignored: 0xFFFF_FE00,
    select_reset: 0x0007_0079,
    rdpmc_first: Some(1),
    events: &[(0xC0, Some(What::Instructions)), (0x79, Some(What::Cycles)), (0x44, None)],
    perfctr: (1, false),
    tsc: Some(0xC1),
    constants: &[(0x186, 0x79)],
    ..P6
};

/// Pentium Processor Family Developer's Manual, 33.4.
const P5MMX: Layout = Layout {
    name: "p5mmx",
    width: 40,
    layout: Selects::Halves,
    selects: &[row(0x11, 1, 1)],
    values: &[(row(0x12, 1, 2), Write::All)],
    select_valid: 0x3FF,
    events: P5_EVENTS,
    perfctr: (2, false),
    ..P6
};
const WINCHIP: Layout = Layout {
    name: "winchip-c6",
    layout: Selects::BareHalves,
    rdtsc: false,
    select_valid: 0xFF,
    events: &[(0x02, Some(What::Instructions)), (0x00, Some(What::Cycles)), (0x03, None)],
    ..P5MMX
};

/// What an ESCR counts: its event, levels (user, system), and for a thread the counter and ESCR SELECT to use.
pub struct Escr {
    pub number: u32,
    pub what: What,
    pub usr: bool,
    pub os: bool,
    pub thread: Option<(u32, u64)>,
}

const fn escr(number: u32, what: What, (usr, os): (bool, bool), thread: Option<(u32, u64)>) -> Escr {
    Escr { number, what, usr, os, thread }
}

/// Those that the guest has set up; SDM volume 3B, 20.6.3 and the tables of NetBurst events.
pub const ESCRS: [Escr; 6] = [
    escr(0x3B8, What::Instructions, (true, false), Some((12, 4))),
    escr(0x3CC, What::Branches, (false, true), Some((13, 5))),
    escr(0x3A2, What::Cycles, (true, true), Some((0, 6))),
    escr(0x3B9, What::Mispredicted, (true, true), Some((14, 4))),
    escr(0x3CD, What::Branches, (true, true), None),
    escr(0x3A3, What::Cycles, (true, false), None),
];

/// The event and its mask in an ESCR.
pub const fn escr_event(what: What) -> u64 {
    match what {
        What::Instructions => 0x02 << 25 | 1 << 9,
        What::Branches => 0x06 << 25 | 0xF << 9,
        What::Cycles => 0x13 << 25 | 1 << 9,
        What::Mispredicted => 0x03 << 25 | 1 << 9,
    }
}

pub const fn escr_levels(usr: bool, os: bool) -> u64 {
    (usr as u64) << 2 | (os as u64) << 3
}

const fn escr_setup(i: usize) -> (u32, u64) {
    (ESCRS[i].number, escr_event(ESCRS[i].what) | escr_levels(ESCRS[i].usr, ESCRS[i].os))
}

/// In the place of events stands ESCR SELECT.
const P4: Layout = Layout {
    name: "p4",
    counters: 18,
    layout: Selects::Cccr,
    selects: &[row(0x360, 1, 18)],
    values: &[(row(0x300, 1, 18), Write::All)],
    select_valid: 0xCFFF_F000,
    events: &[
        (4, Some(What::Instructions)),
        (5, Some(What::Branches)),
        (6, Some(What::Cycles)),
        (4, Some(What::Mispredicted)),
        (0, None),
    ],
    setup: &[escr_setup(0), escr_setup(1), escr_setup(2), escr_setup(3), escr_setup(4), escr_setup(5)],
    perfctr: (4, true),
    ..P6
};

pub static LAYOUTS: &[Layout] = &[
    K7,
    Layout { name: "k8", host: HostFamily::K8, ..K7 },
    Layout { name: "k8", host: HostFamily::Zen4, native: false, events: AMD_EVENTS_ELSEWHERE, ..K7 },
    Layout {
        name: "amd-v2",
        host: HostFamily::Fam10h,
        native: false,
        events: AMD_EVENTS_ELSEWHERE,
        ..AMD_V2
    },
    FAM10H,
    AMD_CORE,
    AMD_V2,
    P6,
    Layout { name: "pii", ..P6 },
    Layout { name: "piii", ..P6 },
    Layout { name: "pentium-m", ..P6 },
    V1,
    V2,
    V3,
    V4,
    V5,
    C3,
    Layout { name: "p5", rdpmc_first: None, ..P5MMX },
    P5MMX,
    Layout { name: "cyrix-mii", width: 48, select_valid: 0x7FF, ..P5MMX },
    P4,
    Layout { name: "p4m2", select_valid: 0xCFFF_F800, ..P4 },
    Layout { name: "p4m3", select_valid: 0xCFFF_F800, ..P4 },
    WINCHIP,
    Layout {
        name: "winchip2",
        events: &[(0x16, Some(What::Instructions)), (0x3F, Some(What::Cycles)), (0x03, None)],
        ..WINCHIP
    },
    Layout {
        name: "winchip3",
        events: &[(0x16, Some(What::Instructions)), (0x3F, Some(What::Cycles)), (0x03, None)],
        ..WINCHIP
    },
];
