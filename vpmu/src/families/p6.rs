//! Intel P6: Pentium Pro, II, III and M. Sources: low-level-x86.txt, "Intel P6"; SDM volume 3B, 20.6.7
//! "Performance Monitoring (P6 Family Processor)" and the tables of their events in volume 3B of 2008, appendix A.
//!
//! Two counters of 40 bits; a write sets the low 32, the others become copies of bit 31. Bit 22 of EVNTSEL0 enables
//! both. Pentium M's local APIC masks LVTPC at an overflow interrupt as the P4's does, those before it do not (the
//! 2.6 driver re-arms it on models 9 and 13).

use perfctr_abi::layout::{CpuControl, cpu_type, feature};

use crate::families::equivalents::{Encodings, Event, find};
use crate::families::facts::{Facts, Family, PmuCpuid, Target};
use crate::families::p6_like::{self, ENABLE, WHAT, event};
use crate::families::registers::{Block, CounterWrite, Enable, Identity, P6Registers, Registers};
use crate::families::select::Select;
use crate::host::pmu::HostEvent;

const fn family(keyword: &'static str, name: &'static str, cpu_type: u32, model: u8, stepping: u8) -> Family {
    let facts = Facts {
        keyword,
        name,
        cpu_type,
        counters: 2,
        width: 40,
        features: feature::RDTSC | feature::PCINT,
        identity: Some(Identity { vendor: b"GenuineIntel", family: 6, model, stepping }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P6(&REGISTERS),
        lvtpc_masks: cpu_type == cpu_type::PENTM,
    };
    let check = |control: &CpuControl| p6_like::check(control, &REGISTERS);
    Family { facts, native: None, layout: p6_like::layout(&REGISTERS), check, host_event }
}

/// Stepping 9: the first without erratum 26, for which Linux takes RDPMC away from programs.
pub(super) static PENTIUM_PRO: Family = family("p6", "Intel Pentium Pro", cpu_type::P6, 1, 9);
pub(super) static PENTIUM_II: Family = family("pii", "Intel Pentium II", cpu_type::PII, 5, 2);
pub(super) static PENTIUM_III: Family = family("piii", "Intel Pentium III", cpu_type::PIII, 8, 6);
pub(super) static PENTIUM_M: Family = family("pentium-m", "Intel Pentium M", cpu_type::PENTM, 13, 6);

const REGISTERS: P6Registers = P6Registers {
    evntsel: Block { base: 0x186, stride: 1, count: 2 },
    counter: Block { base: 0xC1, stride: 1, count: 2 },
    rdpmc_first: 0,
    alias: None,
    full_width: None,
    write: CounterWrite::SignExtended32,
    // Bit 21 is reserved, 19 is pin control.
    evntsel_valid: 0xFFFF_FFFF & !(1 << 21),
    evntsel_ignored: 0,
    evntsel_reset: 0,
    evntsel_first_only: ENABLE as u64,
    enable: Enable::First,
    fixed: None,
    global: None,
    capabilities: None,
    constant: &[],
    tsc: None,
};

const EVENTS: &Encodings = &[
    // CPU_CLK_UNHALTED
    (0x79, Event::Cycles),
    // INST_RETIRED
    (0xC0, Event::Instructions),
    // BR_INST_RETIRED
    (0xC4, Event::Branches),
    // BR_MISS_PRED_RETIRED
    (0xC5, Event::Mispredicted),
    // BR_TAKEN_RETIRED
    (0xC9, Event::TakenBranches),
    // BR_MISS_PRED_TAKEN_RET
    (0xCA, Event::TakenMispredicted),
];

fn host_event(select: Select, target: Target) -> Option<HostEvent> {
    let config = find(EVENTS, select.evntsel & WHAT)?.on(target.host)?;
    Some(event(select, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::family::HostFamily;

    fn on(host: HostFamily) -> Target {
        Target { host, identity: None }
    }

    #[test]
    fn events_are_translated_for_both_vendors() {
        let counted =
            |event: u64, host| host_event(Select::general(0x0041_0000 | event), on(host)).map(|e| e.config);
        for (guest, amd, intel) in [
            (0x79, Some(0x76), Some(0x3C)),
            (0xC0, Some(0xC0), Some(0xC0)),
            (0xC4, Some(0xC2), Some(0xC4)),
            (0xC5, Some(0xC3), Some(0xC5)),
            (0xC9, Some(0xC4), None),
            (0xCA, Some(0xC5), None),
            (0x43, None, None),
            (0x0179, None, None),
            (1 << 18 | 0xC0, None, None),
            (1 << 23 | 1 << 24 | 0xC0, None, None),
        ] {
            assert_eq!(counted(guest, HostFamily::Amd), amd, "{guest:#x}");
            assert_eq!(counted(guest, HostFamily::Intel), intel, "{guest:#x}");
            assert_eq!(counted(guest, HostFamily::Other), None);
        }
    }

    #[test]
    fn levels_and_other_bits_are_not_part_of_the_event() {
        let event = host_event(Select::general(0x0013_0000 | 0xC0), on(HostFamily::Amd));
        assert_eq!(event, Some(HostEvent { config: 0xC0, usr: true, os: true }));
        let event = host_event(Select::general(0x004A_0000 | 0xC0), on(HostFamily::Amd));
        assert_eq!(event, Some(HostEvent { config: 0xC0, usr: false, os: true }));
    }
}
