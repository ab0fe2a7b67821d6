//! Any x86 with a time-stamp counter. Source: low-level-x86.txt, "Generic".

use perfctr_abi::layout::{CpuControl, cpu_type, feature};

use crate::families::control_data::{ControlError, SelectLayout};
use crate::families::facts::{Facts, Family, PmuCpuid};
use crate::families::registers::Registers;

pub(super) static GENERIC: Family = Family {
    facts: Facts {
        keyword: "generic",
        name: "Generic",
        cpu_type: cpu_type::GENERIC,
        counters: 0,
        width: 0,
        features: feature::RDTSC,
        identity: None,
        cpuid: PmuCpuid::NONE,
        registers: Registers::None,
        lvtpc_masks: false,
    },
    native: None,
    layout: SelectLayout::Plain,
    check,
    host_event: |_, _| None,
};

/// Every counter is one too many.
fn check(control: &CpuControl) -> Result<(), ControlError> {
    if control.nractrs != 0 || control.nrictrs != 0 {
        return Err(ControlError::TooMany);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_counter_is_einval() {
        for (nractrs, nrictrs) in [(1, 0), (0, 1), (u32::MAX, 1)] {
            let control = CpuControl { tsc_on: 1, nractrs, nrictrs, ..CpuControl::default() };
            assert_eq!(check(&control).map_err(ControlError::result), Err(-22));
        }
    }

    #[test]
    fn tsc_only_and_nothing_are_valid() {
        assert!(check(&CpuControl { tsc_on: 1, ..CpuControl::default() }).is_ok());
        assert!(check(&CpuControl::default()).is_ok());
    }
}
