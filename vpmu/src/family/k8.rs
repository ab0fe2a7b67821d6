//! AMD K8: a K7 with more events. Sources: low-level-x86.txt, "AMD K7/K8"; BIOS and Kernel Developer's Guide for
//! AMD Athlon 64 and AMD Opteron Processors (26094), chapter 10.

use perfctr_abi::layout::{CpuControl, cpu_type, feature};

use super::{Facts, PmuCpuid, p6_like};
use crate::control::ControlError;
use crate::registers::{Block, CounterWrite, Enable, Identity, P6Registers, Registers};

pub(super) const FACTS: Facts = Facts {
    name: "AMD K8",
    cpu_type: cpu_type::K8,
    counters: 4,
    width: 48,
    features: feature::RDTSC | feature::PCINT,
    identity: Some(Identity { vendor: b"AuthenticAMD", family: 15, model: 5, stepping: 0 }),
    cpuid: PmuCpuid { architectural: None, amd_extended_ecx: 0, perfmon_v2: None },
    registers: Registers::P6(&REGISTERS),
    lvtpc_masks: false,
};

const REGISTERS: P6Registers = P6Registers {
    evntsel: Block { base: 0xC001_0000, stride: 1, count: 4 },
    counter: Block { base: 0xC001_0004, stride: 1, count: 4 },
    rdpmc_first: 0,
    alias: None,
    full_width: None,
    write: CounterWrite::Full,
    evntsel_valid: 0xFFFF_FFFF & !(p6_like::RESERVED as u64),
    evntsel_ignored: 0,
    evntsel_first_only: 0,
    enable: Enable::Own,
    fixed: None,
    global: None,
    capabilities: None,
    constant: &[],
};

pub(super) fn check(control: &CpuControl) -> Result<(), ControlError> {
    p6_like::check(control, &FACTS)
}
