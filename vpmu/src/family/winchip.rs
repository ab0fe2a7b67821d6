//! Centaur WinChip C6, 2 and 3: bad clones of the P5. Sources: low-level-x86.txt, "Intel P5"; WinChip C6, WinChip 2
//! Version A and WinChip 3 Processor Data Sheets, "Performance Monitoring".
//!
//! Eight bits of event for each counter and no control field: the counters count always, at every CPL. The time-stamp
//! counter is put together from the low halves of the two counters, so that using them makes it useless.

use perfctr_abi::layout::{CpuControl, cpu_type};

use super::equivalents::Event;
use super::p5_like::{self, Encodings};
use super::{Facts, PmuCpuid};
use crate::control::ControlError;
use crate::registers::{Identity, P5Registers, Registers};

const fn facts(keyword: &'static str, name: &'static str, cpu_type: u32, model: u8) -> Facts {
    Facts {
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
    }
}

pub(super) const C6: Facts = facts("winchip-c6", "Centaur WinChip C6", cpu_type::WINCHIP_C6, 4);
pub(super) const WINCHIP_2: Facts = facts("winchip2", "Centaur WinChip 2", cpu_type::WINCHIP_2, 8);
/// perfctr counts it as a WinChip 2.
pub(super) const WINCHIP_3: Facts = facts("winchip3", "Centaur WinChip 3", cpu_type::WINCHIP_2, 9);

pub(super) const REGISTERS: P5Registers =
    P5Registers { half_valid: 0x00FF, control_field: false, ..p5_like::REGISTERS };

pub(super) const C6_EVENTS: &Encodings = &[
    // Internal clocks
    (0x00, None, Event::Cycles),
    // x86 instructions
    (0x02, None, Event::Instructions),
];

/// WinChip 2 and 3.
pub(super) const EVENTS: &Encodings = &[
    // Instructions executed
    (0x16, None, Event::Instructions),
    // Internal clocks
    (0x3F, None, Event::Cycles),
];

/// The rules of the P5, and before them: the time-stamp counter is refused (EINVAL).
pub(super) fn check(control: &CpuControl) -> Result<(), ControlError> {
    if control.tsc_on != 0 {
        return Err(ControlError::TscBroken);
    }
    p5_like::check(control, &REGISTERS)
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
