//! AMD family 10h: a K8 whose event codes have 12 bits. Source: BIOS and Kernel Developer's Guide for AMD Family 10h
//! Processors (31116), 2.16 and MSRC001_0000.

use perfctr_abi::layout::{cpu_type, feature};

use crate::families::facts::{Facts, Family, PmuCpuid};
use crate::families::registers::{Identity, P6Registers, Registers};
use crate::families::{amd, p6_like};
use crate::host::processor::HostCounters;

pub(super) static FAM10H: Family = Family {
    facts: Facts {
        keyword: "fam10h",
        name: "AMD Family 10h",
        cpu_type: cpu_type::FAM10H,
        counters: 4,
        width: 48,
        features: feature::RDTSC | feature::PCINT,
        identity: Some(Identity { vendor: b"AuthenticAMD", family: 0x10, model: 2, stepping: 3 }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P6(&REGISTERS),
        lvtpc_masks: false,
    },
    native: Some(HostCounters::Fam10h),
    layout: p6_like::layout(&REGISTERS),
    check: |control| p6_like::check(control, &REGISTERS),
    host_event: |select, target| amd::host_event(select, target, amd::WIDE_WHAT),
};

const REGISTERS: P6Registers =
    P6Registers { evntsel_valid: amd::WIDE, evntsel_ignored: !amd::WIDE, ..amd::K7_REGISTERS };
