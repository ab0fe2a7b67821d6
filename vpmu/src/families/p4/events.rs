//! What counts a P4 event on a host. Source: SDM volume 3B of 2008, tables A-6 to A-11 (NetBurst events).
//!
//! An event is an ESCR with an event select and a mask of it. Those below mean the same on other processors:
//!
//! | ESCR | event | mask | meaning |
//! |---|---|---|---|
//! | FSB | 13 global_power_events | RUNNING | cycles |
//! | CRU 0, 1 | 02 instr_retired | NBOGUSNTAG, with any of the others | instructions |
//! | CRU 0, 1 | 07 instr_completed (model 3) | NBOGUS | instructions |
//! | CRU 0, 1 | 03 mispred_branch_retired | NBOGUS | mispredicted branches |
//! | CRU 2, 3 | 06 branch_retired | all four | branches |
//! | | | MMTP and MMTM | taken branches |
//! | | | MMNM and MMTM | mispredicted branches |
//! | | | MMTM | taken mispredicted branches |
//! | TBPU | 04 retired_branch_type | CONDITIONAL | conditional branches |
//!
//! Of the masks of instr_retired, NBOGUSTAG adds instructions that are tagged, and the BOGUS ones what was executed
//! by mistake and thrown away. Nothing is tagged here, and a host does not say what it throws away: they add nothing.

use super::cccr;
use crate::families::equivalents::Event;
use crate::families::registers::P4Registers;
use crate::families::select::Select;
use crate::host::family::HostFamily;
use crate::host::pmu::HostEvent;

/// ESCR bits 2 and 3: count at CPL 1 to 3, at CPL 0.
const USR: u32 = 1 << 2;
const OS: u32 = 1 << 3;
/// Bit 4: tag micro-operations.
const TAG_ENABLE: u32 = 1 << 4;

/// The unit whose ESCR it is, as in its name.
#[derive(Clone, Copy)]
enum Unit {
    Fsb,
    Tbpu,
    /// CRU_ESCR0 and 1.
    Cru01,
    /// CRU_ESCR2 and 3.
    Cru23,
}

fn unit(escr: u32) -> Option<Unit> {
    Some(match escr {
        0x3A2 | 0x3A3 => Unit::Fsb,
        0x3C2 | 0x3C3 => Unit::Tbpu,
        0x3B8 | 0x3B9 => Unit::Cru01,
        0x3CC | 0x3CD => Unit::Cru23,
        _ => return None,
    })
}

fn event(unit: Unit, select: u32, mask: u32, instr_completed: bool) -> Option<Event> {
    Some(match (unit, select, mask) {
        (Unit::Fsb, 0x13, 0b1) => Event::Cycles,
        (Unit::Cru01, 0x02, mask) if mask & 0b1 != 0 && mask <= 0b1111 => Event::Instructions,
        (Unit::Cru01, 0x07, 0b01) if instr_completed => Event::Instructions,
        (Unit::Cru01, 0x03, 0b1) => Event::Mispredicted,
        (Unit::Cru23, 0x06, 0b1111) => Event::Branches,
        (Unit::Cru23, 0x06, 0b1100) => Event::TakenBranches,
        (Unit::Cru23, 0x06, 0b1010) => Event::Mispredicted,
        (Unit::Cru23, 0x06, 0b1000) => Event::TakenMispredicted,
        (Unit::Tbpu, 0x04, 0b10) => Event::ConditionalBranches,
        _ => return None,
    })
}

/// None of threshold, edge, forced overflow and tagging, of micro-operations or of replays; and ENABLE must be set: a counter
/// that waits for another one's overflow (CASCADE, EXTENDED_CASCADE) counts nothing as it is. The rules of a control
/// allow all of these, as perfctr's do; no other processor counts them.
pub(super) fn host_event(select: Select, host: HostFamily, registers: &P4Registers) -> Option<HostEvent> {
    let (cccr_value, escr) = (select.evntsel as u32, select.escr);
    if cccr_value & cccr::ENABLE == 0
        || cccr_value & (cccr::COMPARE | cccr::EDGE | cccr::FORCE_OVF) != 0
        || escr & TAG_ENABLE != 0
        || select.replay
    {
        return None;
    }
    let counter = usize::from(select.counter?);
    let escr_number = registers.escr_of.get(counter)?[(cccr_value >> cccr::ESCR_SELECT & 7) as usize];
    // Models without IQ_ESCR are those with instr_completed.
    let instr_completed = registers.escr_of[12][0] == 0;
    let event = event(unit(escr_number)?, escr >> 25 & 0x3F, escr >> 9 & 0xFFFF, instr_completed)?;
    Some(HostEvent { config: event.on(host)?, usr: escr & USR != 0, os: escr & OS != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    fn select(counter: u8, escr_select: u64, event: u32, mask: u32) -> Select {
        let cccr_value = u64::from(cccr::ENABLE | cccr::ACTIVE_THREAD) | escr_select << cccr::ESCR_SELECT;
        Select { counter: Some(counter), escr: event << 25 | mask << 9 | USR, ..Select::general(cccr_value) }
    }

    fn on_zen(model: Model, select: Select) -> Option<u64> {
        model.host_event(select, HostFamily::Zen.processor()).map(|event| event.config)
    }

    /// The events of the classic P4 set-up: cycles, instructions, branches, mispredicted branches.
    #[test]
    fn what_clients_have_always_counted() {
        for model in [Model::P4, Model::P4M2, Model::P4M3] {
            assert_eq!(on_zen(model, select(0, 6, 0x13, 1)), Some(0x76));
            assert_eq!(on_zen(model, select(12, 4, 2, 1)), Some(0xC0));
            assert_eq!(on_zen(model, select(13, 5, 6, 0xF)), Some(0xC2));
            assert_eq!(on_zen(model, select(14, 4, 3, 1)), Some(0xC3));
        }
        let event = Model::P4.host_event(select(16, 5, 6, 0xF), HostFamily::Intel.processor());
        assert_eq!(event, Some(HostEvent { config: 0xC4, usr: true, os: false }));
    }

    #[test]
    fn masks_select_kinds_of_branches() {
        let branches = |mask| on_zen(Model::P4, select(13, 5, 6, mask));
        assert_eq!((branches(0xC), branches(0xA), branches(8)), (Some(0xC4), Some(0xC3), Some(0xC5)));
        assert_eq!((branches(3), branches(0), branches(0x1F)), (None, None, None));
        assert_eq!(on_zen(Model::P4, select(4, 2, 4, 0b10)), Some(0xD1));
        // Conditional, call, return, indirect: all but direct jumps.
        assert_eq!(on_zen(Model::P4, select(4, 2, 4, 0b11110)), None);
    }

    #[test]
    fn instructions_that_did_not_retire_add_nothing() {
        let instructions = |mask| on_zen(Model::P4, select(12, 4, 2, mask));
        assert_eq!((instructions(0b0101), instructions(0b1111)), (Some(0xC0), Some(0xC0)));
        assert_eq!((instructions(0b0010), instructions(0b0100)), (None, None));
    }

    #[test]
    fn instr_completed_came_with_model_3() {
        assert_eq!(on_zen(Model::P4M2, select(12, 4, 7, 1)), None);
        assert_eq!(on_zen(Model::P4M3, select(12, 4, 7, 1)), Some(0xC0));
    }

    #[test]
    fn the_same_code_in_another_escr_is_another_event() {
        assert_eq!(on_zen(Model::P4, select(0, 3, 0x13, 1)), None);
        assert_eq!(on_zen(Model::P4, select(12, 6, 0x13, 1)), None);
        assert_eq!(on_zen(Model::P4, Select { counter: None, ..select(0, 6, 0x13, 1) }), None);
        assert_eq!(on_zen(Model::P4, Select { counter: Some(18), ..select(0, 6, 0x13, 1) }), None);
    }

    #[test]
    fn modifiers_are_refused_and_levels_kept() {
        let cycles = select(0, 6, 0x13, 1);
        for bit in [cccr::COMPARE, cccr::EDGE, cccr::FORCE_OVF] {
            assert_eq!(
                on_zen(Model::P4, Select { evntsel: cycles.evntsel | u64::from(bit), ..cycles }),
                None
            );
        }
        let waiting = cycles.evntsel & !u64::from(cccr::ENABLE) | u64::from(cccr::CASCADE);
        assert_eq!(on_zen(Model::P4, Select { evntsel: waiting, ..cycles }), None);
        assert_eq!(on_zen(Model::P4, Select { escr: cycles.escr | TAG_ENABLE, ..cycles }), None);
        assert_eq!(on_zen(Model::P4, Select { replay: true, ..cycles }), None);
        let kernel = Select { escr: cycles.escr & !USR | OS, ..cycles };
        let event = Model::P4.host_event(kernel, HostFamily::Amd.processor());
        assert_eq!(event, Some(HostEvent { config: 0x76, usr: false, os: true }));
    }
}
