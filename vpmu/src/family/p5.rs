//! Intel P5: Pentium and Pentium MMX. Sources: low-level-x86.txt, "Intel P5"; Pentium Processor Family Developer's
//! Manual (241428), 33.4; SDM volume 3B of 2008, table A-16 "Events That Can Be Counted with Pentium Processor
//! Performance-Monitoring Counters".
//!
//! Two counters of 40 bits in one CESR; no local APIC interrupt. Pentium MMX added RDPMC and events that mean
//! something on one counter only.

use perfctr_abi::layout::{cpu_type, feature};

use super::equivalents::Event;
use super::p5_like::{Encodings, REGISTERS};
use super::{Facts, PmuCpuid};
use crate::registers::{Identity, P5Registers, Registers};

const fn facts(
    keyword: &'static str,
    name: &'static str,
    cpu_type: u32,
    (model, stepping): (u8, u8),
    registers: &'static P5Registers,
) -> Facts {
    Facts {
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
    }
}

pub(super) const PENTIUM: Facts = facts("p5", "Intel Pentium", cpu_type::P5, (2, 12), &PENTIUM_REGISTERS);
pub(super) const PENTIUM_MMX: Facts =
    facts("p5mmx", "Intel Pentium MMX", cpu_type::P5MMX, (4, 3), &REGISTERS);

pub(super) const PENTIUM_REGISTERS: P5Registers = P5Registers { rdpmc: false, ..REGISTERS };

/// Interrupts and exceptions count as instructions, as on AMD, and as branches.
pub(super) const EVENTS: &Encodings = &[
    // BRANCHES
    (0x12, None, Event::Branches),
    // INSTRUCTIONS_EXECUTED
    (0x16, None, Event::Instructions),
];

pub(super) const MMX_EVENTS: &Encodings = &[
    (0x12, None, Event::Branches),
    (0x16, None, Event::Instructions),
    // NUMBER_OF_CYCLES_NOT_IN_HALT_STATE
    (0x30, Some(0), Event::Cycles),
    // TAKEN_BRANCHES
    (0x32, Some(1), Event::TakenBranches),
    // PIPELINE_FLUSHES_DUE_TO_WRONG_BRANCH_PREDICTIONS
    (0x35, Some(0), Event::Mispredicted),
];
