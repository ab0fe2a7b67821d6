//! Intel P4: 18 counters, each with a CCCR, and ESCRs that say what it counts. Sources: low-level-x86.txt, "Intel P4";
//! SDM volume 3B, 20.6.3 "Performance Monitoring (Processors Based on Intel NetBurst Microarchitecture)"; volume 4,
//! chapter 2, for register numbers.
//!
//! | model | `cpu_type` | extended cascading | IQ_ESCR0 and 1 | instr_completed |
//! |---|---|---|---|---|
//! | 0, 1 | P4 | | yes | |
//! | 2 | P4M2 | yes | yes | |
//! | 3 and later | P4M3 | yes | | yes |
//!
//! Linux's own perf counts wrong on every P4 since 6.1: `p4_pmu_set_period` writes the right value to the counter and
//! then, for an erratum, once more what was left the time before. perfctr's clients are not concerned.
//!
//! A guest's P4 has no hyper-threading: the document's rules for processors without it apply, and as there are no
//! global-mode counters, those for `is_global` never do.

pub(crate) mod cccr;
mod check;
mod escr;
mod events;

use perfctr_abi::layout::{CpuControl, cpu_type, feature};

use crate::families::control_data::{ControlError, SelectLayout};
use crate::families::facts::{Facts, Family, PmuCpuid, Target};
use crate::families::registers::{Block, Identity, P4Registers, Registers};
use crate::families::select::Select;
use crate::host::pmu::HostEvent;

const fn family(
    keyword: &'static str,
    name: &'static str,
    cpu_type: u32,
    model: u8,
    registers: &'static P4Registers,
    check: fn(&CpuControl) -> Result<(), ControlError>,
    host_event: fn(Select, Target) -> Option<HostEvent>,
) -> Family {
    let facts = Facts {
        keyword,
        name,
        cpu_type,
        counters: 18,
        width: 40,
        features: feature::RDTSC | feature::PCINT,
        identity: Some(Identity { vendor: b"GenuineIntel", family: 15, model, stepping: 1 }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P4(registers),
        lvtpc_masks: true,
    };
    Family { facts, native: None, layout: SelectLayout::P4, check, host_event }
}

pub(super) static MODEL_1: Family = family(
    "p4",
    "Intel Pentium 4",
    cpu_type::P4,
    1,
    &REGISTERS,
    |control| check::check(control, &REGISTERS),
    |select, target| events::host_event(select, target.host, &REGISTERS),
);
pub(super) static MODEL_2: Family = family(
    "p4m2",
    "Intel Pentium 4 Model 2",
    cpu_type::P4M2,
    2,
    &REGISTERS_M2,
    |control| check::check(control, &REGISTERS_M2),
    |select, target| events::host_event(select, target.host, &REGISTERS_M2),
);
/// Model 4, the first with 64 bits.
pub(super) static MODEL_3: Family = family(
    "p4m3",
    "Intel Pentium 4 Model 3",
    cpu_type::P4M3,
    4,
    &REGISTERS_M3,
    |control| check::check(control, &REGISTERS_M3),
    |select, target| events::host_event(select, target.host, &REGISTERS_M3),
);

/// Bits of a CCCR that may be set: all but 10 to 0, 28 and 29. In model 2 and later also 11, extended cascading.
const CCCR_VALID: u32 = !0x3000_0FFF;

const REGISTERS: P4Registers = P4Registers {
    counter: Block { base: 0x300, stride: 1, count: 18 },
    cccr: Block { base: 0x360, stride: 1, count: 18 },
    cccr_valid: CCCR_VALID,
    escr_valid: !escr::RESERVED,
    escrs: &escr::ALL,
    escr_of: &escr::BY_COUNTER,
    // PEBS_ENABLE: metric bits and UOP_TAG; the bits that write records to memory (25, 26) are not there, as
    // IA32_MISC_ENABLE says (PEBS unavailable).
    replay: [(0x3F1, 0x0101_9FFF), (0x3F2, 0x1F)],
};
const REGISTERS_M2: P4Registers =
    P4Registers { cccr_valid: CCCR_VALID | cccr::EXTENDED_CASCADE, ..REGISTERS };
const REGISTERS_M3: P4Registers =
    P4Registers { escrs: &escr::ALL_M3, escr_of: &escr::BY_COUNTER_M3, ..REGISTERS_M2 };
