//! Pentium, and Cyrix' clones as far as they are alike. Source: SDM volume 3B, "Events That Can Be Counted with Pentium
//! Processor Performance-Monitoring Counters".

use super::event::Event;

const INSTRUCTIONS: Event =
    Event::new("INSTRUCTIONS_EXECUTED", 0x16, 0, "instructions executed in both pipes");
const BRANCHES: Event =
    Event::new("BRANCHES", 0x12, 0, "branches, taken or not, and what else changes the flow");

pub(super) const COMMON: &[(&str, Event)] = &[("instructions", INSTRUCTIONS), ("branches", BRANCHES)];

pub(super) const MMX_COMMON: &[(&str, Event)] = &[
    ("cycles", NOT_HALTED),
    ("instructions", INSTRUCTIONS),
    ("branches", BRANCHES),
    ("branch-misses", WRONG_PREDICTIONS),
];

pub(super) const P5: &[Event] = &[
    Event::new("DATA_READ", 0x00, 0, "data reads"),
    Event::new("DATA_WRITE", 0x01, 0, "data writes"),
    Event::new("DATA_TLB_MISS", 0x02, 0, "data TLB misses"),
    Event::new("DATA_READ_MISS", 0x03, 0, "data reads that miss the cache"),
    Event::new("DATA_WRITE_MISS", 0x04, 0, "data writes that miss the cache"),
    Event::new("CODE_READ", 0x0C, 0, "instruction reads"),
    Event::new("CODE_TLB_MISS", 0x0D, 0, "instruction TLB misses"),
    Event::new("CODE_CACHE_MISS", 0x0E, 0, "instruction reads that miss the cache"),
    BRANCHES,
    INSTRUCTIONS,
];

const NOT_HALTED: Event =
    Event::new("NUMBER_OF_CYCLES_NOT_IN_HALT_STATE", 0x30, 0, "cycles while not halted").on(0b01);
const WRONG_PREDICTIONS: Event = Event::new(
    "PIPELINE_FLUSHES_DUE_TO_WRONG_BRANCH_PREDICTIONS",
    0x35,
    0,
    "pipeline flushes by mispredicted branches",
)
.on(0b01);

pub(super) const MMX: &[Event] =
    &[NOT_HALTED, Event::new("TAKEN_BRANCHES", 0x32, 0, "taken branches").on(0b10), WRONG_PREDICTIONS];
