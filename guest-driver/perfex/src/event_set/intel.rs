//! Intel since Core: the architectural events, which every processor with leaf 0xA of CPUID has under the same numbers
//! unless that leaf says otherwise. Source: SDM volume 3B, 20.2.1.2 "Pre-defined Architectural Performance Events" and
//! 20.2.2 for the fixed counters.

use super::event::Event;

const CYCLES: Event = Event::new("UNHALTED_CORE_CYCLES", 0x3C, 0, "core cycles while not halted");
const INSTRUCTIONS: Event = Event::new("INSTRUCTION_RETIRED", 0xC0, 0, "instructions retired");
const BUS_CYCLES: Event =
    Event::new("UNHALTED_REFERENCE_CYCLES", 0x3C, 0x01, "bus or crystal cycles while not halted");
const REFERENCES: Event = Event::new("LLC_REFERENCES", 0x2E, 0x4F, "references to the last level of cache");
const MISSES: Event = Event::new("LLC_MISSES", 0x2E, 0x41, "misses in the last level of cache");
const BRANCHES: Event = Event::new("BRANCH_INSTRUCTION_RETIRED", 0xC4, 0, "branches retired, taken or not");
const MISPREDICTED: Event = Event::new("BRANCH_MISSES_RETIRED", 0xC5, 0, "mispredicted branches retired");

pub(super) const COMMON: &[(&str, Event)] = &[
    ("cycles", CYCLES),
    ("instructions", INSTRUCTIONS),
    ("branches", BRANCHES),
    ("branch-misses", MISPREDICTED),
    ("cache-references", REFERENCES),
    ("cache-misses", MISSES),
    ("bus-cycles", BUS_CYCLES),
];

/// With three fixed counters, which are used when the programmable ones are not enough.
pub(super) const FIXED_COMMON: &[(&str, Event)] = &[
    ("cycles", CYCLES.or_fixed(1)),
    ("instructions", INSTRUCTIONS.or_fixed(0)),
    ("branches", BRANCHES),
    ("branch-misses", MISPREDICTED),
    ("cache-references", REFERENCES),
    ("cache-misses", MISSES),
    ("bus-cycles", BUS_CYCLES),
    // Linux' number for what only fixed counter 2 can count: cycles at the rate of the TSC.
    ("ref-cycles", Event::new("CPU_CLK_UNHALTED.REF_TSC", 0x00, 0x03, "").on(0).or_fixed(2)),
];

pub(super) const ARCHITECTURAL: &[Event] =
    &[CYCLES, INSTRUCTIONS, BUS_CYCLES, REFERENCES, MISSES, BRANCHES, MISPREDICTED];
