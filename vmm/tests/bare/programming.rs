//! How a guest has a counter count, on each model.

use perfctr_abi::pv;
use vpmu::{Enable, Model, P4Registers, P5Registers, P6Registers, Registers};

use crate::guest::Step;

/// The first of the registers that stand in for RDPMC.
pub(crate) const RDPMC: u32 = pv::MSR_BASE + pv::MSR_RDPMC;

/// What counts at CPL 0, of the layouts' bits.
const P6_ENABLE: u64 = 1 << 22;
const P6_OS: u64 = 1 << 17;
const P6_INT: u64 = 1 << 20;
const P4_ON: u64 = 1 << 12 | 0b11 << 16;
const P4_INT: u64 = 1 << 26;
/// CCCR bit 31: the counter has overflowed.
pub(crate) const P4_OVF: u64 = 1 << 31;

pub(crate) fn mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

/// A counter, and how it is used.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    pub(crate) msr: u32,
    pub(crate) width: u32,
    /// Its offset among the paravirtual interface's registers that stand in for RDPMC.
    pub(crate) rdpmc: Option<u32>,
    /// Have it count an event at CPL 0 that hosts of these tests have; with an interrupt.
    pub(crate) on: Vec<Step>,
    pub(crate) on_int: Vec<Step>,
    /// Stop it; empty where it cannot be stopped (VIA C3).
    pub(crate) off: Vec<Step>,
    pub(crate) overflow: Overflow,
    /// How many events a round of [`Step::Spin`] is, if that is known: instructions, or conditional branches.
    pub(crate) per_round: Option<u64>,
}

/// Where an overflow is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overflow {
    Nowhere,
    /// This bit of this register; and of another one that clears it.
    Global {
        status: u32,
        clear: u32,
        bit: u64,
    },
    /// This bit, until the register is written without it: with this value.
    Own {
        status: u32,
        bit: u64,
        on: u64,
    },
}

impl Overflow {
    /// Read it: the bit that is set by an overflow.
    pub(crate) fn read(self) -> Option<(Step, u64)> {
        match self {
            Self::Nowhere => None,
            Self::Global { status, bit, .. } | Self::Own { status, bit, .. } => {
                Some((Step::ReadMsr(status), bit))
            }
        }
    }

    /// Clear it. A counter that runs with an interrupt goes on doing so.
    pub(crate) fn clear(self) -> Option<Step> {
        match self {
            Self::Nowhere => None,
            Self::Global { clear, bit, .. } => Some(Step::WriteMsr(clear, bit)),
            Self::Own { status, on, .. } => Some(Step::WriteMsr(status, on)),
        }
    }
}

/// The counters of `model` that have an event to count.
pub(crate) fn counters(model: Model) -> Vec<Counter> {
    let width = model.facts().width;
    match model.facts().registers {
        Registers::None => Vec::new(),
        Registers::P5(p5) => (0..p5.counter.count)
            .map(|i| {
                // Instructions; at CPL 0 to 2 where that can be said.
                let code = if model == Model::WinChipC6 { 0x02 } else { 0x16 };
                let half = code | if p5.control_field { 1 << 6 } else { 0 };
                let other = p5_rest(p5) & !(0xFFFF << (16 * i));
                let on = vec![Step::WriteMsr(p5.cesr, half << (16 * i) | other)];
                Counter {
                    msr: p5.counter.base + i,
                    width,
                    rdpmc: p5.rdpmc.then_some(i),
                    on_int: on.clone(),
                    on,
                    off: vec![Step::WriteMsr(p5.cesr, p5_rest(p5))],
                    overflow: Overflow::Nowhere,
                    per_round: Some(2),
                }
            })
            .collect(),
        Registers::P6(p6) => {
            let mut list = general(p6, width);
            list.extend(fixed(p6));
            list
        }
        Registers::P4(p4) => (0..p4.counter.count).filter_map(|i| of_p4(p4, i, width)).collect(),
    }
}

/// What CESR holds while nothing is to be counted. WinChips cannot be stopped: an event that they do not have.
fn p5_rest(p5: &P5Registers) -> u64 {
    if p5.control_field { 0 } else { 0x00FF_00FF }
}

/// Have nothing count that counts after reset, or after its event select was cleared.
pub(crate) fn rest(model: Model) -> Vec<Step> {
    match model.facts().registers {
        Registers::P5(p5) => vec![Step::WriteMsr(p5.cesr, p5_rest(p5))],
        // VIA C3's counter cannot be stopped either, and counts clocks after reset.
        Registers::P6(p6) if p6.enable == Enable::Always => vec![Step::WriteMsr(p6.evntsel.base, 0)],
        _ => Vec::new(),
    }
}

fn general(p6: &P6Registers, width: u32) -> Vec<Counter> {
    let number = |block: vpmu::Block, i: u32| block.base + block.stride * i;
    let one = |i: u32| {
        let (evntsel, first) = (number(p6.evntsel, i), p6.evntsel.base);
        let of_first = p6.enable == Enable::First && i > 0;
        // Instructions have this code on all of them.
        let on = |int: u64| match p6.enable {
            Enable::Always => vec![Step::WriteMsr(evntsel, 0xC0)],
            Enable::First if of_first => {
                vec![Step::WriteMsr(evntsel, P6_OS | int | 0xC0), Step::WriteMsr(first, P6_ENABLE)]
            }
            Enable::First | Enable::Own => vec![Step::WriteMsr(evntsel, P6_ENABLE | P6_OS | int | 0xC0)],
        };
        let off = match p6.enable {
            Enable::Always => Vec::new(),
            _ if of_first => vec![Step::WriteMsr(first, 0), Step::WriteMsr(evntsel, 0)],
            _ => vec![Step::WriteMsr(evntsel, 0)],
        };
        Counter {
            msr: number(p6.counter, i),
            width,
            rdpmc: Some(p6.rdpmc_first + i),
            on: on(0),
            on_int: on(P6_INT),
            off,
            overflow: global(p6, i),
            per_round: Some(2),
        }
    };
    (0..p6.counter.count).map(one).collect()
}

fn fixed(p6: &P6Registers) -> Vec<Counter> {
    let (Some(fixed), Some(global_registers)) = (p6.fixed, p6.global) else { return Vec::new() };
    let one = |i: u32| {
        // CPL 0, and the interrupt.
        let on = |control: u64| {
            vec![
                Step::WriteMsr(global_registers.control, global_registers.control_reset | 1 << (32 + i)),
                Step::WriteMsr(fixed.control, control << (4 * i)),
            ]
        };
        Counter {
            msr: fixed.counter.base + i,
            width: fixed.width,
            rdpmc: Some(perfctr_abi::pv::MSR_RDPMC_FIXED - perfctr_abi::pv::MSR_RDPMC + i),
            on: on(0b0001),
            on_int: on(0b1001),
            off: vec![
                Step::WriteMsr(fixed.control, 0),
                Step::WriteMsr(global_registers.control, global_registers.control_reset),
            ],
            overflow: global(p6, 32 + i),
            per_round: (i == 0).then_some(2),
        }
    };
    (0..fixed.counter.count).map(one).collect()
}

fn global(p6: &P6Registers, bit: u32) -> Overflow {
    p6.global.map_or(Overflow::Nowhere, |global| Overflow::Global {
        status: global.status,
        clear: global.clear,
        bit: 1 << bit,
    })
}

/// Cycles in the group of the FSB, conditional branches in that of TBPU, instructions in that of CRU; the fourth group has
/// nothing that another processor has.
fn of_p4(p4: &P4Registers, i: u32, width: u32) -> Option<Counter> {
    let (select, event, mask, per_round) = match i {
        0..4 => (6u64, 0x13u64, 1u64, None),
        4..8 => (2, 0x04, 0b10, Some(1)),
        12.. => (4, 0x02, 1, Some(2)),
        _ => return None,
    };
    let (escr, cccr) = (p4.escr_of[i as usize][select as usize], p4.cccr.base + i);
    let on = |int: u64| {
        vec![
            // At CPL 0.
            Step::WriteMsr(escr, event << 25 | mask << 9 | 1 << 3),
            Step::WriteMsr(cccr, P4_ON | int | select << 13),
        ]
    };
    Some(Counter {
        msr: p4.counter.base + i,
        width,
        rdpmc: Some(i),
        on: on(0),
        on_int: on(P4_INT),
        off: vec![Step::WriteMsr(cccr, 0), Step::WriteMsr(escr, 0)],
        overflow: Overflow::Own { status: cccr, bit: P4_OVF, on: P4_ON | P4_INT | select << 13 },
        per_round,
    })
}
