//! Pentium Pro, II, III and M. Source: SDM volume 3B, "Performance-Monitoring Events: P6 Family Processors".

use super::event::Event;

const CYCLES: Event = Event::new("CPU_CLK_UNHALTED", 0x79, 0, "cycles while not halted");
const INSTRUCTIONS: Event = Event::new("INST_RETIRED", 0xC0, 0, "instructions retired");
const BRANCHES: Event = Event::new("BR_INST_RETIRED", 0xC4, 0, "branches retired, taken or not");
const MISPREDICTED: Event = Event::new("BR_MISS_PRED_RETIRED", 0xC5, 0, "mispredicted branches retired");
const L2_REQUESTS: Event = Event::new("L2_RQSTS", 0x2E, 0x0F, "L2 requests, by MESI state");

pub(super) const COMMON: &[(&str, Event)] = &[
    ("cycles", CYCLES),
    ("instructions", INSTRUCTIONS),
    ("branches", BRANCHES),
    ("branch-misses", MISPREDICTED),
    ("cache-references", L2_REQUESTS),
    // Requests that found the line invalid.
    ("cache-misses", Event::new("L2_RQSTS", 0x2E, 0x01, "")),
];

pub(super) const P6: &[Event] = &[
    Event::new("MISALIGN_MEM_REF", 0x05, 0, "misaligned data references"),
    Event::new("SEGMENT_REG_LOADS", 0x06, 0, "segment register loads"),
    Event::new("FP_COMP_OPS_EXE", 0x10, 0, "floating point operations executed").on(0b01),
    Event::new("FP_ASSIST", 0x11, 0, "floating point exceptions handled by microcode").on(0b10),
    Event::new("MUL", 0x12, 0, "multiplications").on(0b10),
    Event::new("DIV", 0x13, 0, "divisions").on(0b10),
    Event::new("CYCLES_DIV_BUSY", 0x14, 0, "cycles in which the divider is busy").on(0b01),
    Event::new("L2_LINES_IN", 0x24, 0, "lines allocated in the L2"),
    L2_REQUESTS,
    Event::new("DATA_MEM_REFS", 0x43, 0, "data references to memory"),
    Event::new("DCU_LINES_IN", 0x45, 0, "lines allocated in the data cache"),
    CYCLES,
    Event::new("IFU_IFETCH", 0x80, 0, "instruction fetches"),
    Event::new("IFU_IFETCH_MISS", 0x81, 0, "instruction fetches that miss the cache"),
    Event::new("ITLB_MISS", 0x85, 0, "instruction TLB misses"),
    Event::new("RESOURCE_STALLS", 0xA2, 0, "cycles of resource stalls"),
    INSTRUCTIONS,
    Event::new("FLOPS", 0xC1, 0, "floating point operations retired").on(0b01),
    Event::new("UOPS_RETIRED", 0xC2, 0, "micro-operations retired"),
    BRANCHES,
    MISPREDICTED,
    Event::new("HW_INT_RX", 0xC8, 0, "hardware interrupts"),
    Event::new("BR_TAKEN_RETIRED", 0xC9, 0, "taken branches retired"),
    Event::new("BR_MISS_PRED_TAKEN_RET", 0xCA, 0, "mispredicted taken branches retired"),
];
