//! AMD's core performance counter extensions (family 15h and later): six counters. Source: APM volume 2, 13.2.1;
//! CPUID 8000_0001 ECX bit 23, PerfCtrExtCore (APM volume 3, E.4.2).
//!
//! perfctr knew no processor after family 10h: `cpu_type` is that one's, whose event selects are the same, so that
//! old clients see four counters of the six. The identity is of family 17h: Linux takes special paths for 15h,
//! whose events are bound to counters.

use perfctr_abi::layout::{cpu_type, feature};

use crate::families::facts::{Facts, Family, PmuCpuid};
use crate::families::registers::{Identity, Registers};
use crate::families::{amd, p6_like};
use crate::host::processor::HostCounters;

/// PerfCtrExtCore.
pub(super) const EXTENSION: u32 = 1 << 23;

pub(super) static CORE_EXTENSION: Family = Family {
    facts: Facts {
        keyword: "amd-core",
        name: "AMD core extension",
        cpu_type: cpu_type::FAM10H,
        counters: 6,
        width: 48,
        features: feature::RDTSC | feature::PCINT,
        identity: Some(Identity { vendor: b"AuthenticAMD", family: 0x17, model: 0x31, stepping: 0 }),
        cpuid: PmuCpuid { amd_extended_ecx: EXTENSION, ..PmuCpuid::NONE },
        registers: Registers::P6(&amd::CORE_REGISTERS),
        lvtpc_masks: false,
    },
    native: Some(HostCounters::AmdCore),
    layout: p6_like::layout(&amd::CORE_REGISTERS),
    check: |control| p6_like::check(control, &amd::CORE_REGISTERS),
    host_event: |select, target| amd::host_event(select, target, amd::WIDE_WHAT),
};
