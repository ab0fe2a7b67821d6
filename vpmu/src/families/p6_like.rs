//! Checks of the processors whose event selects look like the P6's. Source: low-level-x86.txt, "Intel P6" and
//! "AMD K7/K8"; the order and the error numbers are those of the drivers 2.7.3 and, for what came later, 2.6.42.

use perfctr_abi::layout::CpuControl;

use crate::families::control_data::{ControlError, FIXED_COUNTER, SelectLayout, counter_count};
use crate::families::registers::{Enable, P6Registers};
use crate::families::select::Select;
use crate::host::pmu::HostEvent;

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
/// Event, unit mask, edge (18), invert (23) and counter mask: all that says what is counted.
pub(super) const WHAT: u64 = 0xFFFF | 1 << 18 | 1 << 23 | 0xFF00_0000;
/// Of the upper half of an event select (Fam10h and later): event bits 8 to 11, GuestOnly and HostOnly.
const HIGH: u32 = 0x30F;

/// The host's event `config` at the privilege levels of `select`.
pub(super) fn event(select: Select, config: u64) -> HostEvent {
    let level = |bit: u32| select.evntsel & u64::from(bit) != 0;
    HostEvent { config, usr: level(USR), os: level(OS) }
}

/// The rules, in order: the number of counters (EINVAL); then for each counter its map (EINVAL), the upper half of
/// the event select where there is one (EINVAL), reserved bits (EPERM), enable bit (EINVAL; P6's counter 1: EPERM
/// if set), privilege levels (EINVAL), interrupt bit (EINVAL). Two rules of our own: a fixed counter that is
/// told to count another event than its own (EINVAL), which the driver ignored; and, when all else is right, P6's
/// counter 1 without counter 0 (EINVAL). "The global enable bit (22) in EVNTSEL0 must be set" for that counter to count (SDM
/// volume 3B, 20.6.8.1), and nothing but counter 0's select sets it: the driver took such a control, and the
/// counter stood still, or ran if another state had left the bit set.
pub(super) fn check(control: &CpuControl, registers: &P6Registers) -> Result<(), ControlError> {
    let general = registers.counter.count;
    let fixed = registers.fixed.map_or(0, |fixed| fixed.counter.count);
    let count = counter_count(control, general + fixed).ok_or(ControlError::TooMany)?;
    let actrs = control.nractrs as usize;

    let mut used = 0u32;
    for i in 0..count {
        let map = control.pmc_map[i];
        // Fixed counters follow the general ones.
        let index = match map & FIXED_COUNTER {
            0 if map < general => map,
            FIXED_COUNTER if map & !FIXED_COUNTER < fixed => general + (map & !FIXED_COUNTER),
            _ => return Err(ControlError::BadMap(i)),
        };
        if used & 1 << index != 0 {
            return Err(ControlError::DuplicateMap(i));
        }
        used |= 1 << index;

        if is_wide(registers) && control.p4.escr[i] & !HIGH != 0 {
            return Err(ControlError::HighReserved(i));
        }
        let evntsel = control.evntsel[i];
        if evntsel & RESERVED != 0 {
            return Err(ControlError::Reserved(i));
        }
        match (registers.enable, index, evntsel & ENABLE != 0) {
            (Enable::First, 1.., true) => return Err(ControlError::Reserved(i)),
            (Enable::First, 1.., false) | (_, _, true) => {}
            (_, _, false) => return Err(ControlError::NotEnabled(i)),
        }
        if evntsel & (USR | OS) == 0 {
            return Err(ControlError::NoPrivilegeLevel(i));
        }
        if (evntsel & INT != 0) != (i >= actrs) {
            return Err(ControlError::InterruptBit(i));
        }
        if map & FIXED_COUNTER != 0 && !names_fixed(map & !FIXED_COUNTER, evntsel) {
            return Err(ControlError::NotItsEvent(i));
        }
    }
    if registers.enable == Enable::First && used != 0 && used & 1 == 0 {
        return Err(ControlError::NotEnabled(0));
    }
    Ok(())
}

/// Whether an `evntsel` may stand for fixed counter `number` of Intel's: it names no event, or the one the counter counts.
const fn names_fixed(number: u32, evntsel: u32) -> bool {
    matches!((number, evntsel as u64 & WHAT), (_, 0) | (0, 0xC0) | (1, 0x3C) | (2, 0x0300 | 0x013C))
}

/// What control data says of a counter of these.
pub(super) const fn layout(registers: &P6Registers) -> SelectLayout {
    if is_wide(registers) { SelectLayout::Wide } else { SelectLayout::Plain }
}

/// Whether event selects have an upper half, which the driver 2.6 took from where P4's ESCRs are.
const fn is_wide(registers: &P6Registers) -> bool {
    registers.evntsel_valid >> 32 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Select};

    const EPERM: i32 = -1;
    const EINVAL: i32 = -22;
    /// A valid a-mode event select: instructions, user mode.
    const VALID: u32 = ENABLE | USR | 0xC0;
    /// Those with four counters or more, each with its own enable bit.
    const OWN: [Model; 8] = [
        Model::K7,
        Model::K8,
        Model::Fam10h,
        Model::AmdCore,
        Model::AmdV2,
        Model::IntelV3,
        Model::IntelV4,
        Model::IntelV5,
    ];
    const FIRST: [Model; 4] = [Model::P6, Model::PentiumII, Model::PentiumIII, Model::PentiumM];

    fn control(nractrs: u32, nrictrs: u32) -> CpuControl {
        let mut control = CpuControl { tsc_on: 1, nractrs, nrictrs, ..CpuControl::default() };
        for i in 0..8 {
            control.pmc_map[i] = i as u32;
            control.evntsel[i] = VALID | if i >= nractrs as usize { INT } else { 0 };
            control.ireset[i] = -1;
        }
        control
    }

    /// The same for P6: enable bit in the first only.
    fn p6(nractrs: u32, nrictrs: u32) -> CpuControl {
        let mut control = control(nractrs, nrictrs);
        control.evntsel[1..].iter_mut().for_each(|evntsel| *evntsel &= !ENABLE);
        control
    }

    /// What all of them say, which must be the same.
    fn refusal(control: &CpuControl) -> (ControlError, i32) {
        let error = Model::K8.check(control).unwrap_err();
        for model in OWN {
            assert_eq!(model.check(control).unwrap_err(), error, "{model}");
        }
        (error, error.result())
    }

    fn p6_refusal(control: &CpuControl) -> (ControlError, i32) {
        let error = Model::P6.check(control).unwrap_err();
        for model in FIRST {
            assert_eq!(model.check(control).unwrap_err(), error, "{model}");
        }
        (error, error.result())
    }

    #[test]
    fn four_counters_in_any_order_are_valid() {
        let mut control = control(3, 1);
        control.pmc_map[..4].copy_from_slice(&[3, 1, 0, 2]);
        for model in OWN {
            assert_eq!(model.check(&control).unwrap().pmc_map(), [3, 1, 0, 2]);
        }
    }

    #[test]
    fn both_counters_of_a_p6_are_valid_in_any_order_and_the_first_alone() {
        for model in FIRST {
            assert!(model.check(&p6(2, 0)).is_ok());
            assert!(model.check(&p6(1, 1)).is_ok());
            let mut control = p6(2, 0);
            control.pmc_map[..2].copy_from_slice(&[1, 0]);
            control.evntsel[..2].copy_from_slice(&[VALID & !ENABLE, VALID]);
            assert!(model.check(&control).is_ok());
            control.nractrs = 1;
            assert_eq!(model.check(&control).unwrap_err(), ControlError::NotEnabled(0), "counter 1 alone");
            assert!(model.check(&p6(1, 0)).is_ok());
        }
    }

    #[test]
    fn nothing_at_all_is_valid() {
        for model in OWN.into_iter().chain(FIRST) {
            assert_eq!(model.check(&CpuControl::default()).unwrap().cstatus(), 0);
        }
    }

    #[test]
    fn too_many_counters_is_einval() {
        for count in [12, 18, 19, u32::MAX] {
            assert_eq!(
                refusal(&CpuControl { nractrs: count, ..control(4, 0) }),
                (ControlError::TooMany, EINVAL)
            );
        }
        for (nractrs, nrictrs) in [(u32::MAX, 1), (1, u32::MAX), (8, 4), (0x8000_0000, 0x8000_0000)] {
            let control = CpuControl { nractrs, nrictrs, ..control(4, 0) };
            assert_eq!(refusal(&control), (ControlError::TooMany, EINVAL));
        }
        assert_eq!(p6_refusal(&p6(3, 0)), (ControlError::TooMany, EINVAL));
        assert_eq!(Model::K8.check(&control(5, 0)).unwrap_err(), ControlError::TooMany);
        assert_eq!(Model::AmdV2.check(&control(7, 0)).unwrap_err(), ControlError::TooMany);
        assert!(Model::AmdV2.check(&control(6, 0)).is_ok());
        assert!(Model::IntelV5.check(&control(8, 0)).is_ok());
        assert_eq!(Model::IntelV1.check(&control(3, 0)).unwrap_err(), ControlError::TooMany);
    }

    #[test]
    fn bad_pmc_map_is_einval() {
        for map in [8, 18, 0x8000_0000, 0x4000_0003, 0xC000_0000, u32::MAX] {
            let mut control = control(2, 0);
            control.pmc_map[1] = map;
            assert_eq!(refusal(&control), (ControlError::BadMap(1), EINVAL));
        }
        let mut control = p6(2, 0);
        for map in [2, 0x4000_0000] {
            control.pmc_map[1] = map;
            assert_eq!(p6_refusal(&control), (ControlError::BadMap(1), EINVAL));
        }
    }

    #[test]
    fn duplicate_pmc_map_is_einval() {
        let mut control = control(3, 0);
        control.pmc_map[2] = 0;
        assert_eq!(refusal(&control), (ControlError::DuplicateMap(2), EINVAL));
        let mut control = p6(2, 0);
        control.pmc_map[1] = 0;
        assert_eq!(p6_refusal(&control), (ControlError::DuplicateMap(1), EINVAL));
    }

    #[test]
    fn reserved_bits_are_eperm() {
        for bit in [19, 21] {
            let mut control = control(2, 0);
            control.evntsel[1] |= 1 << bit;
            assert_eq!(refusal(&control), (ControlError::Reserved(1), EPERM));
            let mut control = p6(2, 0);
            control.evntsel[0] |= 1 << bit;
            assert_eq!(p6_refusal(&control), (ControlError::Reserved(0), EPERM));
        }
    }

    #[test]
    fn every_other_bit_is_free() {
        for bit in (0..32).filter(|bit| ![19, 20, 21].contains(bit)) {
            let mut control = control(1, 0);
            control.evntsel[0] |= 1 << bit;
            for model in OWN.into_iter().chain(FIRST) {
                assert!(model.check(&control).is_ok(), "{model}, bit {bit}");
            }
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
    fn p6_has_its_enable_bit_in_counter_0_only() {
        let mut control = p6(2, 0);
        control.evntsel[1] |= ENABLE;
        assert_eq!(p6_refusal(&control), (ControlError::Reserved(1), EPERM));
        let mut control = p6(2, 0);
        control.evntsel[0] &= !ENABLE;
        assert_eq!(p6_refusal(&control), (ControlError::NotEnabled(0), EINVAL));
        control.pmc_map[..2].copy_from_slice(&[1, 0]);
        assert_eq!(p6_refusal(&control), (ControlError::NotEnabled(1), EINVAL));
    }

    #[test]
    fn no_privilege_level_is_einval() {
        let mut control = control(1, 0);
        control.evntsel[0] &= !USR;
        assert_eq!(refusal(&control), (ControlError::NoPrivilegeLevel(0), EINVAL));
        assert_eq!(p6_refusal(&control), (ControlError::NoPrivilegeLevel(0), EINVAL));
        control.evntsel[0] |= OS;
        assert!(Model::K8.check(&control).is_ok());
    }

    #[test]
    fn the_interrupt_bit_must_match_the_mode() {
        let mut control = control(1, 1);
        assert!(Model::K8.check(&control).is_ok());
        control.evntsel[0] |= INT;
        assert_eq!(refusal(&control), (ControlError::InterruptBit(0), EINVAL));
        assert_eq!(p6_refusal(&control), (ControlError::InterruptBit(0), EINVAL));
        control.evntsel[0] &= !INT;
        control.evntsel[1] &= !INT;
        assert_eq!(refusal(&control), (ControlError::InterruptBit(1), EINVAL));
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
        control.evntsel[0] = INT | ENABLE;
        assert_eq!(refusal(&control).0, ControlError::NoPrivilegeLevel(0));
    }

    #[test]
    fn what_lies_beyond_the_counters_is_not_looked_at() {
        let mut control = control(1, 0);
        control.evntsel[1] = u32::MAX;
        control.pmc_map[1] = u32::MAX;
        control.p4.escr[1] = u32::MAX;
        for model in OWN.into_iter().chain(FIRST) {
            assert!(model.check(&control).is_ok(), "{model}");
        }
    }

    #[test]
    fn wide_event_selects_have_their_upper_half_where_escrs_are() {
        let mut control = control(1, 0);
        control.p4.escr[0] = 0x301;
        for model in [Model::Fam10h, Model::AmdCore, Model::AmdV2] {
            let select = model.check(&control).unwrap().selects().next();
            assert_eq!(select, Some(Select::general(0x301 << 32 | u64::from(VALID))));
        }
        // The driver forced it to zero on others.
        let select = Model::K8.check(&control).unwrap().selects().next();
        assert_eq!(select, Some(Select::general(VALID.into())));
        control.p4.escr[0] = 0x10;
        control.evntsel[0] |= RESERVED;
        let error = Model::Fam10h.check(&control).unwrap_err();
        assert_eq!((error, error.result()), (ControlError::HighReserved(0), EINVAL));
    }

    #[test]
    fn fixed_counters_are_mapped_by_bit_30() {
        let mut control = control(1, 2);
        control.pmc_map[..3].copy_from_slice(&[1, 0x4000_0001, 0x4000_0000]);
        control.evntsel[1] = ENABLE | INT | OS;
        for model in [Model::IntelV2, Model::IntelV3, Model::IntelV4, Model::IntelV5] {
            let selects: Vec<_> = model.check(&control).unwrap().selects().collect();
            let wanted = [Select::general(VALID.into()), Select::fixed(1, 0b1001), Select::fixed(0, 0b1010)];
            assert_eq!(selects, wanted);
        }
        assert_eq!(Model::IntelV1.check(&control).unwrap_err(), ControlError::TooMany);
        assert_eq!(Model::K8.check(&control).unwrap_err(), ControlError::BadMap(1));
        control.pmc_map[2] = 0x4000_0001;
        assert_eq!(Model::IntelV2.check(&control).unwrap_err(), ControlError::DuplicateMap(2));
        control.pmc_map[2] = 0x4000_0003;
        assert_eq!(Model::IntelV2.check(&control).unwrap_err(), ControlError::BadMap(2));
    }

    #[test]
    fn a_fixed_counter_counts_no_other_event_than_its_own() {
        let mut control = control(1, 0);
        control.pmc_map[0] = 0x4000_0001;
        for (event, valid) in [(0, true), (0x3C, true), (0xC0, false), (1 << 24 | 0x3C, false)] {
            control.evntsel[0] = ENABLE | USR | event;
            let outcome = Model::IntelV2.check(&control).map(|_| ()).map_err(|e| (e, e.result()));
            let wanted = if valid { Ok(()) } else { Err((ControlError::NotItsEvent(0), EINVAL)) };
            assert_eq!(outcome, wanted, "{event:#x}");
        }
    }
}
