//! Checks of the processors whose event selects look like the P6's. Source: low-level-x86.txt, "Intel P6" and
//! "AMD K7/K8"; the order and the error numbers are those of the 2.7.3 driver.

use perfctr_abi::layout::CpuControl;

use super::Facts;
use crate::control::{ControlError, counter_count};

/// Bits 21 and 19.
pub(super) const RESERVED: u32 = 0x0028_0000;
/// Bit 22: the counter is enabled.
pub(super) const ENABLE: u32 = 1 << 22;
/// Bit 20: interrupt on overflow.
pub(super) const INT: u32 = 1 << 20;
/// Bit 17: count at CPL 0.
pub(super) const OS: u32 = 1 << 17;
/// Bit 16: count at CPL 1 to 3.
pub(super) const USR: u32 = 1 << 16;

/// The rules, in order: the number of counters (EINVAL); then for each counter its map (EINVAL), reserved bits
/// (EPERM), enable bit (EINVAL), privilege levels (EINVAL), interrupt bit (EINVAL).
pub(super) fn check(control: &CpuControl, facts: &Facts) -> Result<(), ControlError> {
    let count = counter_count(control, facts.counters).ok_or(ControlError::TooMany)?;
    let actrs = control.nractrs as usize;

    let mut used = 0u32;
    for i in 0..count {
        let map = control.pmc_map[i];
        if map >= facts.counters {
            return Err(ControlError::BadMap(i));
        }
        if used & 1 << map != 0 {
            return Err(ControlError::DuplicateMap(i));
        }
        used |= 1 << map;

        let evntsel = control.evntsel[i];
        if evntsel & RESERVED != 0 {
            return Err(ControlError::Reserved(i));
        }
        if evntsel & ENABLE == 0 {
            return Err(ControlError::NotEnabled(i));
        }
        if evntsel & (USR | OS) == 0 {
            return Err(ControlError::NoPrivilegeLevel(i));
        }
        if (evntsel & INT != 0) != (i >= actrs) {
            return Err(ControlError::InterruptBit(i));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::k8;
    use super::*;
    use crate::Model;

    const EPERM: i32 = -1;
    const EINVAL: i32 = -22;
    /// A valid a-mode event select: instructions, user mode.
    const VALID: u32 = ENABLE | USR | 0xC0;

    fn control(nractrs: u32, nrictrs: u32) -> CpuControl {
        let mut control = CpuControl { tsc_on: 1, nractrs, nrictrs, ..CpuControl::default() };
        for i in 0..4 {
            control.pmc_map[i] = i as u32;
            control.evntsel[i] = VALID | if i >= nractrs as usize { INT } else { 0 };
            control.ireset[i] = -1;
        }
        control
    }

    /// What K7 and K8 say, which must be the same.
    fn refusal(control: &CpuControl) -> (ControlError, i32) {
        let error = Model::K8.check(control).unwrap_err();
        assert_eq!(Model::K7.check(control).unwrap_err(), error);
        (error, error.result())
    }

    #[test]
    fn four_counters_in_any_order_are_valid() {
        let mut control = control(4, 0);
        control.pmc_map[..4].copy_from_slice(&[3, 1, 0, 2]);
        for model in [Model::K7, Model::K8] {
            assert_eq!(model.check(&control).unwrap().pmc_map(), [3, 1, 0, 2]);
        }
    }

    #[test]
    fn nothing_at_all_is_valid() {
        assert_eq!(Model::K8.check(&CpuControl::default()).unwrap().cstatus(), 0);
    }

    #[test]
    fn too_many_counters_is_einval() {
        for count in [5, 18, 19, u32::MAX] {
            let mut control = control(4, 0);
            control.nractrs = count;
            assert_eq!(refusal(&control), (ControlError::TooMany, EINVAL));
        }
        for (nractrs, nrictrs) in [(u32::MAX, 1), (1, u32::MAX), (4, 1), (0x8000_0000, 0x8000_0000)] {
            let mut control = control(4, 0);
            (control.nractrs, control.nrictrs) = (nractrs, nrictrs);
            assert_eq!(check(&control, &k8::FACTS), Err(ControlError::TooMany));
        }
    }

    #[test]
    fn bad_pmc_map_is_einval() {
        for map in [4, 18, 0x8000_0000, u32::MAX] {
            let mut control = control(2, 0);
            control.pmc_map[1] = map;
            assert_eq!(refusal(&control), (ControlError::BadMap(1), EINVAL));
        }
    }

    #[test]
    fn duplicate_pmc_map_is_einval() {
        let mut control = control(3, 0);
        control.pmc_map[2] = 0;
        assert_eq!(refusal(&control), (ControlError::DuplicateMap(2), EINVAL));
    }

    #[test]
    fn reserved_bits_are_eperm() {
        for bit in [19, 21] {
            let mut control = control(2, 0);
            control.evntsel[1] |= 1 << bit;
            assert_eq!(refusal(&control), (ControlError::Reserved(1), EPERM));
        }
    }

    #[test]
    fn every_other_bit_is_free() {
        for bit in (0..32).filter(|bit| ![19, 20, 21].contains(bit)) {
            let mut control = control(1, 0);
            control.evntsel[0] |= 1 << bit;
            assert!(Model::K8.check(&control).is_ok(), "bit {bit}");
        }
    }

    #[test]
    fn a_clear_enable_bit_is_einval_in_each_counter() {
        for i in 0..4 {
            let mut control = control(4, 0);
            control.evntsel[i] &= !ENABLE;
            assert_eq!(refusal(&control), (ControlError::NotEnabled(i), EINVAL));
        }
    }

    #[test]
    fn no_privilege_level_is_einval() {
        let mut control = control(1, 0);
        control.evntsel[0] &= !USR;
        assert_eq!(refusal(&control), (ControlError::NoPrivilegeLevel(0), EINVAL));
        control.evntsel[0] |= OS;
        assert!(Model::K8.check(&control).is_ok());
    }

    #[test]
    fn the_interrupt_bit_of_an_a_mode_counter_is_einval() {
        let mut control = control(1, 0);
        control.evntsel[0] |= INT;
        assert_eq!(refusal(&control), (ControlError::InterruptBit(0), EINVAL));
    }

    #[test]
    fn a_clear_interrupt_bit_of_an_i_mode_counter_is_einval() {
        let mut control = control(1, 1);
        assert!(check(&control, &k8::FACTS).is_ok());
        control.evntsel[1] &= !INT;
        assert_eq!(check(&control, &k8::FACTS), Err(ControlError::InterruptBit(1)));
    }

    #[test]
    fn earlier_rules_speak_first() {
        let mut control = control(2, 0);
        control.evntsel[1] = RESERVED;
        assert_eq!(refusal(&control).0, ControlError::Reserved(1));
        control.pmc_map[1] = 9;
        assert_eq!(refusal(&control).0, ControlError::BadMap(1));
        control.evntsel[0] = 0;
        assert_eq!(refusal(&control).0, ControlError::NotEnabled(0));
    }

    #[test]
    fn what_lies_beyond_the_counters_is_not_looked_at() {
        let mut control = control(1, 0);
        control.evntsel[1] = u32::MAX;
        control.pmc_map[1] = u32::MAX;
        assert!(Model::K8.check(&control).is_ok());
    }
}
