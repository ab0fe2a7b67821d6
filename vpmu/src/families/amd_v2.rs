//! AMD Performance Monitoring Version 2 (Zen 4 and later): the core extension with global registers. Sources: APM
//! volume 2, 13.2.5; PPR for AMD Family 19h Model 11h (55901), MSRC000_0300 to 0303; CPUID 8000_0022 (APM volume 3,
//! E.4.22): EAX bit 0, EBX bits 0 to 3 the number of counters.
//!
//! PerfCntrGlobalCtl enables every counter after reset, so that software which does not know it sees no difference.
//! The identity is of family 19h, `cpu_type` as for the core extension.

use perfctr_abi::layout::{cpu_type, feature};

use crate::families::facts::{Facts, Family, PmuCpuid};
use crate::families::registers::{GlobalRegisters, Identity, P6Registers, Registers};
use crate::families::{amd, amd_core, p6_like};
use crate::host::processor::HostCounters;

pub(super) static PERFMON_V2: Family = Family {
    facts: Facts {
        keyword: "amd-v2",
        name: "AMD PerfMonV2",
        cpu_type: cpu_type::FAM10H,
        counters: 6,
        width: 48,
        features: feature::RDTSC | feature::PCINT,
        identity: Some(Identity { vendor: b"AuthenticAMD", family: 0x19, model: 0x11, stepping: 1 }),
        cpuid: PmuCpuid { amd_extended_ecx: amd_core::EXTENSION, perfmon_v2: Some(6), ..PmuCpuid::NONE },
        registers: Registers::P6(&REGISTERS),
        lvtpc_masks: false,
    },
    native: Some(HostCounters::AmdV2),
    layout: p6_like::layout(&REGISTERS),
    check: |control| p6_like::check(control, &REGISTERS),
    host_event: |select, target| amd::host_event(select, target, amd::WIDE_WHAT),
};

const REGISTERS: P6Registers = P6Registers {
    global: Some(GlobalRegisters {
        control: 0xC000_0301,
        control_reset: 0x3F,
        status: 0xC000_0300,
        clear: 0xC000_0302,
        set: Some(0xC000_0303),
        in_use: None,
        clear_also: 0,
        forgiving: true,
    }),
    ..amd::CORE_REGISTERS
};
