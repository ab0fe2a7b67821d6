//! AMD. Sources: "AMD Athlon Processor x86 Code Optimization Guide" (22007), appendix D, for the K7; "BIOS and Kernel
//! Developer's Guide for AMD Athlon 64 and AMD Opteron Processors" (26094), section 10.2, for the K8, and its
//! successor for family 10h (31116), section 3.14. Later families have the same numbers for what is listed here as
//! common. Every counter counts every event.

use super::event::Event;

const CYCLES: Event =
    Event::new("CYCLES_NOT_HALTED", 0x76, 0, "cycles in which the processor was not halted");

pub(super) const K7_COMMON: &[(&str, Event)] = &[
    // The K7's manual is silent on it; Linux has always counted cycles there by it.
    ("cycles", CYCLES),
    ("instructions", Event::new("RETIRED_INSTRUCTIONS", 0xC0, 0, "")),
    ("branches", Event::new("RETIRED_BRANCHES", 0xC2, 0, "")),
    ("branch-misses", Event::new("RETIRED_BRANCHES_MISPREDICTED", 0xC3, 0, "")),
];

pub(super) const K8_COMMON: &[(&str, Event)] = &[
    ("cycles", CYCLES),
    ("instructions", Event::new("RETIRED_INSTRUCTIONS", 0xC0, 0, "")),
    ("branches", Event::new("RETIRED_BRANCHES", 0xC2, 0, "")),
    ("branch-misses", Event::new("RETIRED_BRANCHES_MISPREDICTED", 0xC3, 0, "")),
    // L2, for instructions, data and page walks.
    ("cache-references", Event::new("BU_INTERNAL_L2_REQUEST", 0x7D, 0x07, "")),
    ("cache-misses", Event::new("BU_FILL_REQUEST_L2_MISS", 0x7E, 0x07, "")),
];

/// Those that K8 and family 10h have as well.
pub(super) const K7: &[Event] = &[
    Event::new("DATA_CACHE_ACCESSES", 0x40, 0, "data cache accesses"),
    Event::new("DATA_CACHE_MISSES", 0x41, 0, "data cache misses"),
    Event::new("L1_DTLB_MISSES_AND_L2_DTLB_HITS", 0x45, 0, "L1 DTLB misses that hit in the L2 DTLB"),
    Event::new("L1_AND_L2_DTLB_MISSES", 0x46, 0, "misses in both DTLBs"),
    Event::new("MISALIGNED_DATA_REFERENCES", 0x47, 0, "data accesses that cross an alignment boundary"),
    Event::new("INSTRUCTION_CACHE_FETCHES", 0x80, 0, "instruction cache fetches"),
    Event::new("INSTRUCTION_CACHE_MISSES", 0x81, 0, "instruction cache misses"),
    Event::new("RETIRED_INSTRUCTIONS", 0xC0, 0, "instructions retired, interrupts and exceptions included"),
    Event::new("RETIRED_OPS", 0xC1, 0, "macro-operations retired"),
    Event::new("RETIRED_BRANCHES", 0xC2, 0, "branches retired, taken or not"),
    Event::new("RETIRED_BRANCHES_MISPREDICTED", 0xC3, 0, "mispredicted branches retired"),
    Event::new("RETIRED_TAKEN_BRANCHES", 0xC4, 0, "taken branches retired"),
];

pub(super) const K8: &[Event] = &[
    Event::new("FPU_OPS", 0x00, 0x3F, "operations dispatched to the FPU, by kind"),
    CYCLES,
    Event::new("BU_INTERNAL_L2_REQUEST", 0x7D, 0x1F, "requests to the L2 cache, by kind"),
    Event::new("BU_FILL_REQUEST_L2_MISS", 0x7E, 0x07, "L2 fills missed, by kind"),
];

pub(super) const FAM10H: &[Event] = &[
    Event::new("FPU_OPS", 0x00, 0x3F, "operations dispatched to the FPU, by kind"),
    CYCLES,
    Event::new("L2_CACHE_REQUESTS", 0x7D, 0x3F, "requests to the L2 cache, by kind"),
    Event::new("L2_CACHE_MISSES", 0x7E, 0x0F, "L2 misses, by kind"),
];
