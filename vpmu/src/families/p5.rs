//! Intel P5: Pentium and Pentium MMX. Sources: low-level-x86.txt, "Intel P5"; Pentium Processor Family Developer's
//! Manual (241428), 33.4; SDM volume 3B of 2008, table A-16 "Events That Can Be Counted with Pentium Processor
//! Performance-Monitoring Counters".
//!
//! Two counters of 40 bits in one CESR; no local APIC interrupt. Pentium MMX added RDPMC and events that mean
//! something on one counter only.

use perfctr_abi::layout::{CpuControl, cpu_type, feature};

use crate::families::control_data::{ControlError, SelectLayout};
use crate::families::equivalents::Event;
use crate::families::facts::{Facts, Family, PmuCpuid, Target};
use crate::families::p5_like::{self, Encodings, REGISTERS};
use crate::families::registers::{Identity, P5Registers, Registers};
use crate::families::select::Select;
use crate::host::pmu::HostEvent;

const fn family(
    keyword: &'static str,
    name: &'static str,
    cpu_type: u32,
    (model, stepping): (u8, u8),
    registers: &'static P5Registers,
    check: fn(&CpuControl) -> Result<(), ControlError>,
    host_event: fn(Select, Target) -> Option<HostEvent>,
) -> Family {
    let facts = Facts {
        keyword,
        name,
        cpu_type,
        counters: 2,
        width: 40,
        features: feature::RDTSC,
        identity: Some(Identity { vendor: b"GenuineIntel", family: 5, model, stepping }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P5(registers),
        lvtpc_masks: false,
    };
    Family { facts, native: None, layout: SelectLayout::Numbered, check, host_event }
}

pub(super) static PENTIUM: Family = family(
    "p5",
    "Intel Pentium",
    cpu_type::P5,
    (2, 12),
    &PENTIUM_REGISTERS,
    |control| p5_like::check(control, &PENTIUM_REGISTERS),
    |select, target| p5_like::host_event(select, target.host, &PENTIUM_REGISTERS, EVENTS),
);
pub(super) static PENTIUM_MMX: Family = family(
    "p5mmx",
    "Intel Pentium MMX",
    cpu_type::P5MMX,
    (4, 3),
    &REGISTERS,
    |control| p5_like::check(control, &REGISTERS),
    |select, target| p5_like::host_event(select, target.host, &REGISTERS, MMX_EVENTS),
);

const PENTIUM_REGISTERS: P5Registers = P5Registers { rdpmc: false, ..REGISTERS };

/// Interrupts and exceptions count as instructions, as on AMD, and as branches.
const EVENTS: &Encodings = &[
    // BRANCHES
    (0x12, None, Event::Branches),
    // INSTRUCTIONS_EXECUTED
    (0x16, None, Event::Instructions),
];

const MMX_EVENTS: &Encodings = &[
    (0x12, None, Event::Branches),
    (0x16, None, Event::Instructions),
    // NUMBER_OF_CYCLES_NOT_IN_HALT_STATE
    (0x30, Some(0), Event::Cycles),
    // TAKEN_BRANCHES
    (0x32, Some(1), Event::TakenBranches),
    // PIPELINE_FLUSHES_DUE_TO_WRONG_BRANCH_PREDICTIONS
    (0x35, Some(0), Event::Mispredicted),
];
