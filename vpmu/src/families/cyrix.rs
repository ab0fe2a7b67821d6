//! Cyrix 6x86MX, MII and III: good clones of the P5. Sources: low-level-x86.txt, "Intel P5"; Cyrix M II Data Book,
//! "Performance Monitoring".
//!
//! Event codes have seven bits, the seventh is bit 10; the counters have 48 bits. Codes are those of the Pentium MMX
//! as far as they go, without those of cycles and mispredictions.

use perfctr_abi::layout::{cpu_type, feature};

use crate::families::control_data::SelectLayout;
use crate::families::equivalents::Event;
use crate::families::facts::{Facts, Family, PmuCpuid};
use crate::families::p5_like::{self, Encodings};
use crate::families::registers::{Identity, P5Registers, Registers};

pub(super) static MII: Family = Family {
    facts: Facts {
        keyword: "cyrix-mii",
        name: "Cyrix 6x86MX/MII/III",
        cpu_type: cpu_type::CYRIX_MII,
        counters: 2,
        width: 48,
        features: feature::RDTSC,
        identity: Some(Identity { vendor: b"CyrixInstead", family: 6, model: 0, stepping: 0 }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P5(&REGISTERS),
        lvtpc_masks: false,
    },
    native: None,
    layout: SelectLayout::Numbered,
    check: |control| p5_like::check(control, &REGISTERS),
    host_event: |select, target| p5_like::host_event(select, target.host, &REGISTERS, EVENTS),
};

const REGISTERS: P5Registers = P5Registers { half_valid: 0x07FF, ..p5_like::REGISTERS };

const EVENTS: &Encodings = &[
    (0x12, None, Event::Branches),
    (0x16, None, Event::Instructions),
    (0x32, Some(1), Event::TakenBranches),
];
