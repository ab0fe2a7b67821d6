//! AMD K7. Sources: low-level-x86.txt, "AMD K7/K8"; AMD Athlon Processor x86 Code Optimization Guide (22007),
//! appendix D.

use perfctr_abi::layout::{cpu_type, feature};

use crate::families::facts::{Facts, Family, PmuCpuid};
use crate::families::registers::{Identity, Registers};
use crate::families::{amd, p6_like};
use crate::host::processor::HostCounters;

pub(super) static K7: Family = Family {
    facts: Facts {
        keyword: "k7",
        name: "AMD K7",
        cpu_type: cpu_type::K7,
        counters: 4,
        width: 48,
        features: feature::RDTSC | feature::PCINT,
        identity: Some(Identity { vendor: b"AuthenticAMD", family: 6, model: 8, stepping: 0 }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P6(&amd::K7_REGISTERS),
        lvtpc_masks: false,
    },
    native: Some(HostCounters::K7),
    layout: p6_like::layout(&amd::K7_REGISTERS),
    check: |control| p6_like::check(control, &amd::K7_REGISTERS),
    host_event: |select, target| amd::host_event(select, target, p6_like::WHAT),
};
