//! What control data of a P4 must look like. The order and the error numbers are those of the 2.7.3 driver.

use perfctr_abi::layout::{CpuControl, P4Control};

use super::{cccr, escr};
use crate::families::control_data::{ControlError, P4Error, counter_count};
use crate::families::registers::P4Registers;

/// Bit of `pmc_map`: fast RDPMC, the low 32 bits only.
const FAST_RDPMC: u32 = 1 << 31;
/// OVF, OVF_PMI_T1 and bits that the hardware reserves.
const CCCR_RESERVED: u32 = 0xB800_07FF;
/// ESCR bits 0 and 1: count what the other thread does, user and kernel.
const ESCR_OTHER_THREAD: u32 = 0b11;

const UOP_TAG: u32 = 1 << 24;
/// Bits 10, 9, 2, 1 and 0.
const REPLAY_TAGS: u32 = 0x0607;
/// Bits 1 and 0.
const MATRIX_TAGS: u32 = 0b11;

/// The rules, in order: the number of counters (EINVAL); for each counter its map (EINVAL), CCCR, ESCR; then replay
/// tagging. Two counters may name one ESCR with different contents: the driver leaves that open, and here each
/// counts what its own says.
pub(super) fn check(control: &CpuControl, registers: &P4Registers) -> Result<(), ControlError> {
    let count = counter_count(control, registers.counter.count).ok_or(ControlError::TooMany)?;
    let mut used = 0u32;
    for i in 0..count {
        let counter = control.pmc_map[i] & !FAST_RDPMC;
        if counter >= registers.counter.count {
            return Err(ControlError::BadMap(i));
        }
        if used & 1 << counter != 0 {
            return Err(ControlError::DuplicateMap(i));
        }
        used |= 1 << counter;
        check_cccr(control, i, counter, registers)?;
        let value = control.p4.escr[i];
        if value & escr::RESERVED != 0 {
            return Err(P4Error::EscrReserved(i).into());
        }
        if value & ESCR_OTHER_THREAD != 0 {
            return Err(P4Error::OtherThread(i).into());
        }
        let select = (control.evntsel[i] >> cccr::ESCR_SELECT & 7) as usize;
        if registers.escr_of[counter as usize][select] == 0 {
            return Err(P4Error::NoEscr(i).into());
        }
    }
    check_replay(&control.p4, count)?;
    Ok(())
}

/// In order: reserved bits (EPERM), EXTENDED_CASCADE where there is none (EPERM), ACTIVE_THREAD (EINVAL), some enable
/// bit (EINVAL), OVF_PMI by mode (EINVAL), the restart value that FORCE_OVF needs (EINVAL).
fn check_cccr(
    control: &CpuControl,
    i: usize,
    counter: u32,
    registers: &P4Registers,
) -> Result<(), ControlError> {
    let value = control.evntsel[i];
    if value & CCCR_RESERVED != 0 {
        return Err(ControlError::Reserved(i));
    }
    if value & cccr::EXTENDED_CASCADE != 0 {
        let model_has = registers.cccr_valid & cccr::EXTENDED_CASCADE != 0;
        if !model_has || !matches!(counter, 12 | 15..=17) {
            return Err(P4Error::ExtendedCascade(i).into());
        }
    }
    if value & cccr::ACTIVE_THREAD != cccr::ACTIVE_THREAD {
        return Err(P4Error::ActiveThread(i).into());
    }
    if value & (cccr::ENABLE | cccr::CASCADE | cccr::EXTENDED_CASCADE) == 0 {
        return Err(ControlError::NotEnabled(i));
    }
    let imode = i >= control.nractrs as usize;
    if (value & cccr::OVF_PMI_T0 != 0) != imode {
        return Err(ControlError::InterruptBit(i));
    }
    if imode && value & cccr::FORCE_OVF != 0 && control.ireset[i] != -1 {
        return Err(P4Error::ForcedOverflow(i).into());
    }
    Ok(())
}

/// PEBS_ENABLE and PEBS_MATRIX_VERT, of which replay tagging alone is there.
fn check_replay(p4: &P4Control, counters: usize) -> Result<(), P4Error> {
    let (enable, matrix) = (p4.pebs_enable, p4.pebs_matrix_vert);
    if enable == 0 {
        return if matrix == 0 { Ok(()) } else { Err(P4Error::MatrixReserved) };
    }
    if counters == 0 {
        return Err(P4Error::ReplayWithoutCounter);
    }
    if enable & !(UOP_TAG | REPLAY_TAGS) != 0 {
        return Err(P4Error::ReplayReserved);
    }
    if enable & UOP_TAG == 0 || enable & REPLAY_TAGS == 0 {
        return Err(P4Error::ReplayIncomplete);
    }
    if matrix & !MATRIX_TAGS != 0 {
        return Err(P4Error::MatrixReserved);
    }
    if matrix == 0 {
        return Err(P4Error::MatrixIncomplete);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    const EPERM: i32 = -1;
    const EINVAL: i32 = -22;
    const ALL: [Model; 3] = [Model::P4, Model::P4M2, Model::P4M3];

    /// Instructions retired in user mode on counters 12, 13, ..; the last `nrictrs` in i-mode.
    fn control(nractrs: u32, nrictrs: u32) -> CpuControl {
        let mut control = CpuControl { tsc_on: 1, nractrs, nrictrs, ..CpuControl::default() };
        for i in 0..6 {
            control.pmc_map[i] = FAST_RDPMC | (12 + i as u32);
            control.evntsel[i] = cccr::ACTIVE_THREAD | 4 << cccr::ESCR_SELECT | cccr::ENABLE;
            if i >= nractrs as usize {
                control.evntsel[i] |= cccr::OVF_PMI_T0;
            }
            control.p4.escr[i] = 0x0400_0204;
            control.ireset[i] = -1;
        }
        control
    }

    /// What all models say, which must be the same.
    #[track_caller]
    fn refused(control: &CpuControl, error: impl Into<ControlError>, number: i32) {
        let error = error.into();
        for model in ALL {
            assert_eq!(model.check(control).map(|_| ()), Err(error), "{model}");
        }
        assert_eq!(error.result(), number);
    }

    #[test]
    fn six_counters_in_both_modes_are_valid() {
        for model in ALL {
            let checked = model.check(&control(3, 3)).unwrap();
            let selects: Vec<_> = checked.selects().collect();
            assert_eq!(selects[5].counter, Some(17));
            assert_eq!((selects[0].evntsel, selects[0].escr), (0x0003_9000, 0x0400_0204));
            assert_eq!(checked.pmc_map()[0], FAST_RDPMC | 12);
            assert!(model.check(&CpuControl::default()).is_ok());
        }
    }

    #[test]
    fn all_eighteen_counters_are_valid_at_once() {
        let mut control = CpuControl { nractrs: 17, nrictrs: 1, ..CpuControl::default() };
        for counter in 0..18 {
            // FSB, TBPU, FIRM, CRU.
            let select = [6, 2, 1, 4, 4][counter / 4];
            control.pmc_map[counter] = counter as u32;
            control.evntsel[counter] = cccr::ACTIVE_THREAD | select << cccr::ESCR_SELECT | cccr::ENABLE;
        }
        control.evntsel[17] |= cccr::OVF_PMI_T0;
        control.ireset[17] = -1;
        for model in ALL {
            let checked = model.check(&control).unwrap();
            assert_eq!((checked.pmc_map()[17], checked.ireset(17)), (17, Some(-1)));
            assert_eq!(checked.cstatus(), 0x0001_1211);
        }
    }

    #[test]
    fn numbers_and_maps() {
        refused(&control(19, 0), ControlError::TooMany, EINVAL);
        refused(&CpuControl { nrictrs: u32::MAX, ..control(2, 0) }, ControlError::TooMany, EINVAL);
        for map in [18, FAST_RDPMC | 18, 0x4000_000C, u32::MAX] {
            let mut control = control(2, 0);
            control.pmc_map[1] = map;
            refused(&control, ControlError::BadMap(1), EINVAL);
        }
        let mut control = control(2, 0);
        control.pmc_map[1] = 12;
        refused(&control, ControlError::DuplicateMap(1), EINVAL);
    }

    #[test]
    fn reserved_cccr_bits_are_eperm() {
        for bit in (0..11).chain([27, 28, 29, 31]) {
            let mut control = control(2, 0);
            control.evntsel[1] |= 1 << bit;
            refused(&control, ControlError::Reserved(1), EPERM);
        }
        for bit in [18, 19, 20, 23, 24, 25, 30] {
            let mut control = control(2, 0);
            control.evntsel[1] |= 1 << bit;
            assert!(ALL.iter().all(|model| model.check(&control).is_ok()), "bit {bit}");
        }
    }

    #[test]
    fn extended_cascading_is_for_some_counters_of_some_models() {
        for counter in 0..6 {
            let mut control = control(6, 0);
            control.evntsel[counter] |= cccr::EXTENDED_CASCADE;
            let error = Err(P4Error::ExtendedCascade(counter).into());
            assert_eq!(Model::P4.check(&control).map(|_| ()), error);
            let wanted = if matches!(counter, 0 | 3 | 4 | 5) { Ok(()) } else { error };
            assert_eq!(Model::P4M2.check(&control).map(|_| ()), wanted, "counter {}", counter + 12);
            assert_eq!(Model::P4M3.check(&control).map(|_| ()), wanted);
        }
        assert_eq!(ControlError::from(P4Error::ExtendedCascade(0)).result(), EPERM);
        // One that waits for another's overflow need not be enabled.
        let mut control = control(1, 0);
        control.evntsel[0] = control.evntsel[0] & !cccr::ENABLE | cccr::EXTENDED_CASCADE;
        assert!(Model::P4M2.check(&control).is_ok());
    }

    #[test]
    fn cccr_rules() {
        for bit in [16, 17] {
            let mut control = control(2, 0);
            control.evntsel[1] &= !(1 << bit);
            refused(&control, P4Error::ActiveThread(1), EINVAL);
        }
        let mut control = control(1, 1);
        control.evntsel[1] &= !cccr::ENABLE;
        refused(&control, ControlError::NotEnabled(1), EINVAL);
        control.evntsel[1] |= cccr::CASCADE;
        assert!(Model::P4.check(&control).is_ok());
        control.evntsel[0] |= cccr::OVF_PMI_T0;
        refused(&control, ControlError::InterruptBit(0), EINVAL);
        control.evntsel[0] &= !cccr::OVF_PMI_T0;
        control.evntsel[1] &= !cccr::OVF_PMI_T0;
        refused(&control, ControlError::InterruptBit(1), EINVAL);
    }

    #[test]
    fn forced_overflow_restarts_at_minus_one() {
        let mut control = control(1, 1);
        control.evntsel[1] |= cccr::FORCE_OVF;
        assert!(Model::P4.check(&control).is_ok());
        control.ireset[1] = -2;
        refused(&control, P4Error::ForcedOverflow(1), EINVAL);
        control.evntsel[1] &= !cccr::FORCE_OVF;
        assert!(Model::P4.check(&control).is_ok());
        control.ireset[1] = 0;
        refused(&control, ControlError::Reset(1), EINVAL);
    }

    #[test]
    fn escr_rules() {
        let mut control = control(2, 0);
        control.p4.escr[1] |= 1 << 31;
        refused(&control, P4Error::EscrReserved(1), EPERM);
        for bit in [0, 1] {
            control.p4.escr[1] = 1 << bit;
            refused(&control, P4Error::OtherThread(1), EINVAL);
        }
        control.p4.escr[1] = 0;
        control.evntsel[1] |= 7 << cccr::ESCR_SELECT;
        refused(&control, P4Error::NoEscr(1), EINVAL);
    }

    #[test]
    fn iq_escrs_are_gone_in_model_3() {
        let mut control = control(1, 0);
        control.evntsel[0] &= !(7 << cccr::ESCR_SELECT);
        assert!(Model::P4.check(&control).is_ok());
        assert!(Model::P4M2.check(&control).is_ok());
        assert_eq!(Model::P4M3.check(&control).map(|_| ()), Err(P4Error::NoEscr(0).into()));
    }

    #[test]
    fn replay_tagging() {
        let with = |pebs_enable, pebs_matrix_vert| {
            let mut control = control(1, 0);
            (control.p4.pebs_enable, control.p4.pebs_matrix_vert) = (pebs_enable, pebs_matrix_vert);
            control
        };
        for tag in [0, 1, 2, 9, 10] {
            assert!(Model::P4.check(&with(UOP_TAG | 1 << tag, 0b10)).is_ok());
        }
        refused(&with(0, 1), P4Error::MatrixReserved, EPERM);
        let none = CpuControl { nractrs: 0, ..with(UOP_TAG | 1, 1) };
        refused(&none, P4Error::ReplayWithoutCounter, EPERM);
        for bit in [3, 8, 11, 25] {
            refused(&with(UOP_TAG | 1 | 1 << bit, 1), P4Error::ReplayReserved, EPERM);
        }
        refused(&with(1, 1), P4Error::ReplayIncomplete, EINVAL);
        refused(&with(UOP_TAG, 1), P4Error::ReplayIncomplete, EINVAL);
        refused(&with(UOP_TAG | 1, 0b101), P4Error::MatrixReserved, EPERM);
        refused(&with(UOP_TAG | 1, 0), P4Error::MatrixIncomplete, EINVAL);
    }

    #[test]
    fn earlier_rules_speak_first() {
        let mut control = control(2, 0);
        control.p4.pebs_matrix_vert = 1;
        control.p4.escr[1] = u32::MAX;
        refused(&control, P4Error::EscrReserved(1), EPERM);
        control.evntsel[1] = 0;
        refused(&control, P4Error::ActiveThread(1), EINVAL);
        control.evntsel[1] = 1;
        refused(&control, ControlError::Reserved(1), EPERM);
        control.pmc_map[1] = 99;
        refused(&control, ControlError::BadMap(1), EINVAL);
    }
}
