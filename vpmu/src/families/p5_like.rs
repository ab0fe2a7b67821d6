//! Checks and privilege levels of P5 and its clones, whose CESR has 16 bits for each of two counters. Source:
//! low-level-x86.txt, "Intel P5"; SDM volume 3B, 20.6.9 "Performance Monitoring (Pentium Processors)".

use perfctr_abi::layout::CpuControl;

use crate::families::control_data::{ControlError, counter_count};
use crate::families::equivalents::Event;
use crate::families::registers::{Block, CounterWrite, P5Registers};
use crate::families::select::Select;
use crate::host::family::HostFamily;
use crate::host::pmu::HostEvent;

/// Bit 9: the counter's pin shows overflows instead of increments. The driver does not let users set it.
const PIN: u32 = 1 << 9;
/// Bits 6 and 7: CPL 0 to 2, CPL 3.
const CPL: u32 = 0xC0;
const OS: u64 = 1 << 6;
const USR: u64 = 1 << 7;
/// Bit 8: count clocks (duration) instead of events.
const DURATION: u64 = 1 << 8;

pub(super) const REGISTERS: P5Registers = P5Registers {
    cesr: 0x11,
    counter: Block { base: 0x12, stride: 1, count: 2 },
    // Event 0 to 5, counter control 6 to 8, pin control 9.
    half_valid: 0x03FF,
    control_field: true,
    rdpmc: true,
    write: CounterWrite::Full,
};

/// The rules, in order: at most two counters (EINVAL); then for each its map (EINVAL), reserved bits (EPERM), CPL bits,
/// if it has them (EINVAL).
pub(super) fn check(control: &CpuControl, registers: &P5Registers) -> Result<(), ControlError> {
    let count = counter_count(control, registers.counter.count).ok_or(ControlError::TooMany)?;
    let mut used = 0u32;
    for i in 0..count {
        let map = control.pmc_map[i];
        if map >= registers.counter.count {
            return Err(ControlError::BadMap(i));
        }
        if used & 1 << map != 0 {
            return Err(ControlError::DuplicateMap(i));
        }
        used |= 1 << map;

        let evntsel = control.evntsel[i];
        if evntsel & !(u32::from(registers.half_valid) & !PIN) != 0 {
            return Err(ControlError::Reserved(i));
        }
        if registers.control_field && evntsel & CPL == 0 {
            return Err(ControlError::NoPrivilegeLevel(i));
        }
    }
    Ok(())
}

/// An event code, the counter on which it has this meaning (`None`: on both), and the meaning.
pub(super) type Encodings = [(u64, Option<u8>, Event)];

/// Durations are refused: what they are depends on the event, and no other processor has them. CPL 1 and 2, which
/// nothing uses, count with CPL 3 on the host and with CPL 0 on the P5.
pub(super) fn host_event(
    select: Select,
    host: HostFamily,
    registers: &P5Registers,
    encodings: &Encodings,
) -> Option<HostEvent> {
    let half = select.evntsel & !u64::from(PIN);
    let (code, usr, os) = if registers.control_field {
        if half & DURATION != 0 {
            return None;
        }
        (half & !u64::from(CPL), half & USR != 0, half & OS != 0)
    } else {
        (half, true, true)
    };
    let means = |on: &Option<u8>| on.is_none() || *on == select.counter;
    let (_, _, event) = encodings.iter().find(|(encoding, on, _)| *encoding == code && means(on))?;
    Some(HostEvent { config: event.on(host)?, usr, os })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    const EPERM: i32 = -1;
    const EINVAL: i32 = -22;
    const ALL: [Model; 6] =
        [Model::P5, Model::P5Mmx, Model::CyrixMii, Model::WinChipC6, Model::WinChip2, Model::WinChip3];

    /// Two counters, instructions in user mode; no CPL bits for those without.
    fn control(model: Model) -> CpuControl {
        let winchip = matches!(model, Model::WinChipC6 | Model::WinChip2 | Model::WinChip3);
        let mut control = CpuControl { nractrs: 2, ..CpuControl::default() };
        control.pmc_map[1] = 1;
        control.evntsel[..2].fill(if winchip { 0x16 } else { 0x96 });
        control
    }

    fn refusal(model: Model, control: &CpuControl) -> (ControlError, i32) {
        let error = model.check(control).expect_err("valid");
        (error, error.result())
    }

    #[test]
    fn two_counters_are_valid_in_either_order() {
        for model in ALL {
            let mut control = control(model);
            assert!(model.check(&control).is_ok(), "{model}");
            control.pmc_map[..2].copy_from_slice(&[1, 0]);
            let numbers: Vec<_> = model.check(&control).unwrap().selects().map(|s| s.counter).collect();
            assert_eq!(numbers, [Some(1), Some(0)]);
        }
    }

    #[test]
    fn the_rules_common_to_all() {
        for model in ALL {
            let valid = control(model);
            let one = CpuControl { nractrs: 1, ..valid };
            assert_eq!(
                refusal(model, &CpuControl { nrictrs: 1, ..one }),
                (ControlError::NoInterrupts, EPERM)
            );
            assert_eq!(refusal(model, &CpuControl { nractrs: 3, ..valid }), (ControlError::TooMany, EINVAL));
            let mut control = valid;
            control.pmc_map[1] = 2;
            assert_eq!(refusal(model, &control), (ControlError::BadMap(1), EINVAL));
            control.pmc_map[1] = 0;
            assert_eq!(refusal(model, &control), (ControlError::DuplicateMap(1), EINVAL));
        }
    }

    #[test]
    fn reserved_bits_are_those_of_the_specification() {
        for (models, reserved) in [
            (&[Model::P5, Model::P5Mmx][..], 0xFFFF_FE00u32),
            (&[Model::CyrixMii], 0xFFFF_FA00),
            (&[Model::WinChipC6, Model::WinChip2, Model::WinChip3], 0xFFFF_FF00),
        ] {
            for (&model, bit) in models.iter().flat_map(|model| (0..32).map(move |bit| (model, bit))) {
                let mut control = control(model);
                control.evntsel[1] |= 1 << bit;
                if reserved & 1 << bit != 0 {
                    assert_eq!(refusal(model, &control), (ControlError::Reserved(1), EPERM), "{model} {bit}");
                } else {
                    assert!(model.check(&control).is_ok(), "{model} {bit}");
                }
            }
        }
    }

    #[test]
    fn no_cpl_bit_is_einval_where_there_are_any() {
        for model in [Model::P5, Model::P5Mmx, Model::CyrixMii] {
            let mut control = control(model);
            control.evntsel[0] = 0x116;
            assert_eq!(refusal(model, &control), (ControlError::NoPrivilegeLevel(0), EINVAL));
            control.evntsel[0] |= 1 << 9;
            assert_eq!(refusal(model, &control), (ControlError::Reserved(0), EPERM));
        }
    }

    fn event(model: Model, half: u64, counter: u8) -> Option<HostEvent> {
        let select = Select { counter: Some(counter), ..Select::general(half) };
        model.host_event(select, HostFamily::Amd.processor())
    }

    #[test]
    fn levels_come_from_the_control_field() {
        for (bits, usr, os) in [(1, false, true), (2, true, false), (3, true, true), (0, false, false)] {
            let wanted = Some(HostEvent { config: 0xC0, usr, os });
            assert_eq!(event(Model::P5, bits << 6 | 0x16, 0), wanted);
            assert_eq!(event(Model::P5, 1 << 9 | bits << 6 | 0x16, 1), wanted);
        }
        assert_eq!(event(Model::P5, DURATION | 0xD6, 0), None);
        assert_eq!(event(Model::WinChip2, 0x16, 0), Some(HostEvent { config: 0xC0, usr: true, os: true }));
    }

    #[test]
    fn some_events_mean_something_on_one_counter_only() {
        let config = |model, code: u64, counter| event(model, 0xC0 | code, counter).map(|event| event.config);
        assert_eq!(config(Model::P5Mmx, 0x30, 0), Some(0x76));
        assert_eq!(config(Model::P5Mmx, 0x30, 1), None);
        assert_eq!(config(Model::P5Mmx, 0x32, 0), None);
        assert_eq!(config(Model::P5Mmx, 0x32, 1), Some(0xC4));
        assert_eq!(config(Model::P5, 0x30, 0), None, "P5 has no such event");
        assert_eq!(config(Model::P5, 0x12, 1), Some(0xC2));
        assert_eq!(config(Model::CyrixMii, 0x12, 1), Some(0xC2));
        assert_eq!(config(Model::CyrixMii, 0x416, 1), None, "bit 10 is part of the code");
    }

    #[test]
    fn winchips_have_codes_of_their_own() {
        let config = |model, code| event(model, code, 0).map(|event| event.config);
        assert_eq!(
            (config(Model::WinChipC6, 0x00), config(Model::WinChipC6, 0x02)),
            (Some(0x76), Some(0xC0))
        );
        assert_eq!(config(Model::WinChipC6, 0x16), None);
        for model in [Model::WinChip2, Model::WinChip3] {
            assert_eq!(
                (config(model, 0x3F), config(model, 0x16), config(model, 0x00)),
                (Some(0x76), Some(0xC0), None)
            );
        }
    }
}
