//! AMD K8: a K7 with more events. Sources: low-level-x86.txt, "AMD K7/K8"; BIOS and Kernel Developer's Guide for
//! AMD Athlon 64 and AMD Opteron Processors (26094), chapter 10.

use perfctr_abi::layout::{cpu_type, feature};

use crate::families::facts::{Facts, Family, PmuCpuid};
use crate::families::registers::{Identity, Registers};
use crate::families::{amd, p6_like};
use crate::host::processor::HostCounters;

pub(super) static K8: Family = Family {
    facts: Facts {
        keyword: "k8",
        name: "AMD K8",
        cpu_type: cpu_type::K8,
        counters: 4,
        width: 48,
        features: feature::RDTSC | feature::PCINT,
        identity: Some(Identity { vendor: b"AuthenticAMD", family: 15, model: 5, stepping: 0 }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P6(&amd::K7_REGISTERS),
        lvtpc_masks: false,
    },
    native: Some(HostCounters::K8),
    layout: p6_like::layout(&amd::K7_REGISTERS),
    check: |control| p6_like::check(control, &amd::K7_REGISTERS),
    host_event: |select, target| amd::host_event(select, target, p6_like::WHAT),
};
