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

mod check;
mod escr;
mod events;

use perfctr_abi::layout::{cpu_type, feature};

pub(super) use self::check::check;
pub(super) use self::events::host_event;
use super::{Facts, PmuCpuid};
use crate::registers::{Block, Identity, P4Registers, Registers};

const fn facts(
    keyword: &'static str,
    name: &'static str,
    cpu_type: u32,
    model: u8,
    registers: &'static P4Registers,
) -> Facts {
    Facts {
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
    }
}

pub(super) const MODEL_1: Facts = facts("p4", "Intel Pentium 4", cpu_type::P4, 1, &REGISTERS);
pub(super) const MODEL_2: Facts = facts("p4m2", "Intel Pentium 4 Model 2", cpu_type::P4M2, 2, &REGISTERS_M2);
/// Model 4, the first with 64 bits.
pub(super) const MODEL_3: Facts = facts("p4m3", "Intel Pentium 4 Model 3", cpu_type::P4M3, 4, &REGISTERS_M3);

/// Bits of a CCCR that may be set: all but 10 to 0, 28 and 29. In model 2 and later also 11, extended cascading.
const CCCR_VALID: u32 = !0x3000_0FFF;

const REGISTERS: P4Registers = P4Registers {
    counter: Block { base: 0x300, stride: 1, count: 18 },
    cccr: Block { base: 0x360, stride: 1, count: 18 },
    cccr_valid: CCCR_VALID,
    escr_valid: !ESCR_RESERVED,
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

/// ESCR bit 31.
const ESCR_RESERVED: u32 = 1 << 31;

/// Bits of a CCCR.
pub(crate) mod cccr {
    /// The counter starts when another one of the last group overflows: 12 and 17 after 16, 15 and 16 after 17.
    pub(crate) const EXTENDED_CASCADE: u32 = 1 << 11;
    /// The counter counts.
    pub(crate) const ENABLE: u32 = 1 << 12;
    /// ESCR SELECT, three bits from here.
    pub(crate) const ESCR_SELECT: u32 = 13;
    /// Count while any logical processor is active; required without hyper-threading.
    pub(crate) const ACTIVE_THREAD: u32 = 0b11 << 16;
    /// Of these: count while exactly one is active.
    pub(crate) const ACTIVE_SINGLE: u32 = 0b01 << 16;
    /// Compare with the threshold.
    pub(crate) const COMPARE: u32 = 1 << 18;
    /// Count rising edges of the comparison.
    pub(crate) const EDGE: u32 = 1 << 24;
    /// Overflow at every increment.
    pub(crate) const FORCE_OVF: u32 = 1 << 25;
    /// Interrupt at overflow.
    pub(crate) const OVF_PMI_T0: u32 = 1 << 26;
    /// The same for the other thread.
    pub(crate) const OVF_PMI_T1: u32 = 1 << 27;
    /// The counter starts when its partner in the other pair of the group overflows.
    pub(crate) const CASCADE: u32 = 1 << 30;
    /// The counter has overflowed; software clears it.
    pub(crate) const OVF: u32 = 1 << 31;
}
