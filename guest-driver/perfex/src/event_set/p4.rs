//! Pentium 4. Source: SDM volume 3B, "Performance Monitoring Events Supported by Intel NetBurst Microarchitecture for
//! Non-Retirement Counting" and "... At-Retirement Counting", and the table of counters, CCCRs and ESCRs.
//!
//! An event is an ESCR with an event select and a mask; the CCCR's ESCR SELECT says which ESCR its counter follows. Each
//! ESCR exists twice, for one half of a group of counters each.

/// An event and where it can be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct P4Event {
    /// perf's name.
    pub(crate) common: &'static str,
    /// The manual's name.
    pub(crate) native: &'static str,
    /// CCCR bits 13 to 15.
    pub(crate) escr_select: u32,
    /// ESCR bits 25 to 30.
    pub(crate) event: u32,
    /// ESCR bits 9 to 24.
    pub(crate) mask: u32,
    /// The counters of each of its two ESCRs.
    pub(crate) counters: [&'static [u32]; 2],
}

/// MSR_IQ counters.
const IQ: [&[u32]; 2] = [&[12, 13, 16], &[14, 15, 17]];
/// MSR_BPU counters. The others of their pairs could do as well, but not on all models.
const BPU: [&[u32]; 2] = [&[0], &[2]];

pub(super) const EVENTS: &[P4Event] = &[
    // FSB_ESCR: RUNNING
    P4Event {
        common: "cycles",
        native: "GLOBAL_POWER_EVENTS",
        escr_select: 6,
        event: 0x13,
        mask: 0b1,
        counters: BPU,
    },
    // CRU_ESCR0, 1: NBOGUSNTAG
    P4Event {
        common: "instructions",
        native: "INSTR_RETIRED",
        escr_select: 4,
        event: 0x02,
        mask: 0b1,
        counters: IQ,
    },
    // CRU_ESCR2, 3: MMNP, MMNM, MMTP, MMTM
    P4Event {
        common: "branches",
        native: "BRANCH_RETIRED",
        escr_select: 5,
        event: 0x06,
        mask: 0b1111,
        counters: IQ,
    },
    // CRU_ESCR0, 1: NBOGUS
    P4Event {
        common: "branch-misses",
        native: "MISPRED_BRANCH_RETIRED",
        escr_select: 4,
        event: 0x03,
        mask: 0b1,
        counters: IQ,
    },
];
