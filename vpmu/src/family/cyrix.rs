//! Cyrix 6x86MX, MII and III: good clones of the P5. Sources: low-level-x86.txt, "Intel P5"; Cyrix M II Data Book,
//! "Performance Monitoring".
//!
//! Event codes have seven bits, the seventh is bit 10; the counters have 48 bits. Codes are those of the Pentium MMX
//! as far as they go, without those of cycles and mispredictions.

use perfctr_abi::layout::{cpu_type, feature};

use super::equivalents::Event;
use super::p5_like::{self, Encodings};
use super::{Facts, PmuCpuid};
use crate::registers::{Identity, P5Registers, Registers};

pub(super) const FACTS: Facts = Facts {
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
};

pub(super) const REGISTERS: P5Registers = P5Registers { half_valid: 0x07FF, ..p5_like::REGISTERS };

pub(super) const EVENTS: &Encodings = &[
    (0x12, None, Event::Branches),
    (0x16, None, Event::Instructions),
    (0x32, Some(1), Event::TakenBranches),
];
