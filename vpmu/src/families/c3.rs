//! VIA C3: superficially a P6. Sources: low-level-x86.txt, "VIA C3"; VIA C3 Samuel 2 Processor Datasheet (1.03),
//! appendix A, and what perfctr found out by testing.
//!
//! Only EVNTSEL1 and PERFCTR1 (32 bits) work. PERFCTR0 is another name of the time-stamp counter, EVNTSEL0 can only
//! be read. EVNTSEL1 has nine bits of event and nothing else: no privilege levels, no way to stop the counter, no
//! interrupt. Its other bits do nothing; after boot some of them are set, and the event is internal clocks (perfctr,
//! `vc3_clear_counters`).

use perfctr_abi::layout::{CpuControl, cpu_type, feature};

use crate::families::control_data::{ControlError, SelectLayout};
use crate::families::equivalents::{Encodings, Event, find};
use crate::families::facts::{Facts, Family, PmuCpuid, Target};
use crate::families::registers::{Block, CounterWrite, Enable, Identity, P6Registers, Registers};
use crate::families::select::Select;
use crate::host::pmu::HostEvent;

pub(super) static C3: Family = Family {
    facts: Facts {
        keyword: "c3",
        name: "VIA C3",
        cpu_type: cpu_type::VIA_C3,
        counters: 1,
        width: 32,
        features: feature::RDTSC,
        identity: Some(Identity { vendor: b"CentaurHauls", family: 6, model: 7, stepping: 3 }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P6(&REGISTERS),
        lvtpc_masks: false,
    },
    native: None,
    layout: SelectLayout::Plain,
    check,
    host_event,
};

const EVENT: u32 = 0x1FF;

const REGISTERS: P6Registers = P6Registers {
    evntsel: Block { base: 0x187, stride: 1, count: 1 },
    counter: Block { base: 0xC2, stride: 1, count: 1 },
    rdpmc_first: 1,
    alias: None,
    full_width: None,
    write: CounterWrite::Full,
    evntsel_valid: EVENT as u64,
    evntsel_ignored: 0xFFFF_FFFF & !(EVENT as u64),
    evntsel_reset: 0x0007_0079,
    evntsel_first_only: 0,
    enable: Enable::Always,
    fixed: None,
    global: None,
    capabilities: None,
    // The event of EVNTSEL0 is internal clocks, as it should be of the time-stamp counter. What its other bits hold is
    // written nowhere.
    constant: &[(0x186, INTERNAL_CLOCKS)],
    tsc: Some(0xC1),
};

const INTERNAL_CLOCKS: u64 = 0x079;

const EVENTS: &Encodings = &[
    (INTERNAL_CLOCKS, Event::Cycles),
    // Instructions executed
    (0x0C0, Event::Instructions),
];

/// The rules, in order: at most one counter (EINVAL), which is number 1 (EINVAL), reserved bits (EPERM).
fn check(control: &CpuControl) -> Result<(), ControlError> {
    if control.nrictrs != 0 || control.nractrs > 1 {
        return Err(ControlError::TooMany);
    }
    if control.nractrs == 1 {
        if control.pmc_map[0] != 1 {
            return Err(ControlError::BadMap(0));
        }
        if control.evntsel[0] & !EVENT != 0 {
            return Err(ControlError::Reserved(0));
        }
    }
    Ok(())
}

/// It counts at every privilege level.
fn host_event(select: Select, target: Target) -> Option<HostEvent> {
    let config = find(EVENTS, select.evntsel)?.on(target.host)?;
    Some(HostEvent { config, usr: true, os: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use crate::host::family::HostFamily;

    fn control(pmc_map: u32, evntsel: u32) -> CpuControl {
        let mut control = CpuControl { nractrs: 1, ..CpuControl::default() };
        (control.pmc_map[0], control.evntsel[0]) = (pmc_map, evntsel);
        control
    }

    #[test]
    fn the_rules() {
        let check = |control: CpuControl| Model::C3.check(&control).map(|_| ()).map_err(|e| (e, e.result()));
        assert_eq!(check(CpuControl::default()), Ok(()));
        assert_eq!(check(control(1, 0x1FF)), Ok(()));
        assert_eq!(check(CpuControl { nractrs: 2, ..control(1, 0xC0) }), Err((ControlError::TooMany, -22)));
        assert_eq!(check(CpuControl { nrictrs: 1, ..control(1, 0) }), Err((ControlError::NoInterrupts, -1)));
        for map in [0, 2, 0x8000_0001] {
            assert_eq!(check(control(map, u32::MAX)), Err((ControlError::BadMap(0), -22)));
        }
        for bit in 9..32 {
            assert_eq!(check(control(1, 1 << bit)), Err((ControlError::Reserved(0), -1)), "bit {bit}");
        }
    }

    #[test]
    fn two_of_its_three_events_have_equivalents() {
        let on = |event, host| host_event(Select::general(event), Target { host, identity: None });
        assert_eq!(on(0x79, HostFamily::Intel), Some(HostEvent { config: 0x3C, usr: true, os: true }));
        assert_eq!(on(0xC0, HostFamily::Amd), Some(HostEvent { config: 0xC0, usr: true, os: true }));
        // Instructions and string iterations.
        assert_eq!(on(0x1C0, HostFamily::Amd), None);
    }
}
