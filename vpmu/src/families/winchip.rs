//! Centaur WinChip C6, 2 and 3: bad clones of the P5. Sources: low-level-x86.txt, "Intel P5"; WinChip C6, WinChip 2
//! Version A and WinChip 3 Processor Data Sheets, "Performance Monitoring".
//!
//! Eight bits of event for each counter and no control field: the counters count always, at every CPL. The time-stamp
//! counter is put together from the low halves of the two counters, so that using them makes it useless.

use perfctr_abi::layout::{CpuControl, cpu_type};

use crate::families::control_data::{ControlError, SelectLayout};
use crate::families::equivalents::Event;
use crate::families::facts::{Facts, Family, PmuCpuid, Target};
use crate::families::p5_like::{self, Encodings};
use crate::families::registers::{Identity, P5Registers, Registers};
use crate::families::select::Select;
use crate::host::pmu::HostEvent;

const fn family(
    keyword: &'static str,
    name: &'static str,
    cpu_type: u32,
    model: u8,
    host_event: fn(Select, Target) -> Option<HostEvent>,
) -> Family {
    let facts = Facts {
        keyword,
        name,
        cpu_type,
        counters: 2,
        width: 40,
        // No RDTSC: low-level-x86.txt, "The TSC is broken and cannot be used".
        features: 0,
        identity: Some(Identity { vendor: b"CentaurHauls", family: 5, model, stepping: 1 }),
        cpuid: PmuCpuid::NONE,
        registers: Registers::P5(&REGISTERS),
        lvtpc_masks: false,
    };
    Family { facts, native: None, layout: SelectLayout::Numbered, check, host_event }
}

pub(super) static C6: Family = family("winchip-c6", "Centaur WinChip C6", cpu_type::WINCHIP_C6, 4, c6_event);
pub(super) static WINCHIP_2: Family = family("winchip2", "Centaur WinChip 2", cpu_type::WINCHIP_2, 8, event);
/// perfctr counts it as a WinChip 2.
pub(super) static WINCHIP_3: Family = family("winchip3", "Centaur WinChip 3", cpu_type::WINCHIP_2, 9, event);

const REGISTERS: P5Registers = P5Registers { half_valid: 0x00FF, control_field: false, ..p5_like::REGISTERS };

const C6_EVENTS: &Encodings = &[
    // Internal clocks
    (0x00, None, Event::Cycles),
    // x86 instructions
    (0x02, None, Event::Instructions),
];

/// WinChip 2 and 3.
const EVENTS: &Encodings = &[
    // Instructions executed
    (0x16, None, Event::Instructions),
    // Internal clocks
    (0x3F, None, Event::Cycles),
];

/// The rules of the P5, and before them: the time-stamp counter is refused (EINVAL).
fn check(control: &CpuControl) -> Result<(), ControlError> {
    if control.tsc_on != 0 {
        return Err(ControlError::TscBroken);
    }
    p5_like::check(control, &REGISTERS)
}

fn c6_event(select: Select, target: Target) -> Option<HostEvent> {
    p5_like::host_event(select, target.host, &REGISTERS, C6_EVENTS)
}

fn event(select: Select, target: Target) -> Option<HostEvent> {
    p5_like::host_event(select, target.host, &REGISTERS, EVENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn the_tsc_is_refused_first() {
        for model in [Model::WinChipC6, Model::WinChip2, Model::WinChip3] {
            let control = CpuControl { tsc_on: 1, nractrs: 3, ..CpuControl::default() };
            let error = model.check(&control).unwrap_err();
            assert_eq!((error, error.result()), (ControlError::TscBroken, -22));
        }
    }
}
