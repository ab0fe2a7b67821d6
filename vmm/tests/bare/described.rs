//! The registers of a model, flat: what each holds after reset, and what may be written to it.

use vpmu::{CounterWrite, Model, P4Registers, P5Registers, P6Registers, Registers};

/// What may be written to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bits that stay, and bits that are ignored; others fault.
    Bits { valid: u64, ignored: u64 },
    /// The same, but it always reads as zero.
    Action { valid: u64, ignored: u64 },
    /// A counter of so many bits.
    Counter { width: u32, write: CounterWrite },
    /// Writes fault, or are ignored.
    ReadOnly { silently: bool },
    /// Writes of what it holds are ignored, others fault.
    Constant,
    /// It is not known what it reads as, and it cannot be written.
    Tsc,
}

/// A register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register {
    pub(crate) msr: u32,
    pub(crate) reset: u64,
    pub(crate) kind: Kind,
    /// The register of which this is another number.
    pub(crate) twin: Option<u32>,
}

impl Register {
    fn new(msr: u32, kind: Kind) -> Self {
        Self { msr, reset: 0, kind, twin: None }
    }

    fn at_reset(self, reset: u64) -> Self {
        Self { reset, ..self }
    }

    fn other_name_of(self, twin: u32) -> Self {
        Self { twin: Some(twin), ..self }
    }
}

/// Every register of `model`.
pub(crate) fn registers(model: Model) -> Vec<Register> {
    let width = model.facts().width;
    match model.facts().registers {
        Registers::None => Vec::new(),
        Registers::P5(p5) => of_p5(p5, width),
        Registers::P6(p6) => of_p6(p6, width),
        Registers::P4(p4) => of_p4(p4, width),
    }
}

fn of_p5(p5: &P5Registers, width: u32) -> Vec<Register> {
    let half = u64::from(p5.half_valid);
    let counter = Kind::Counter { width, write: p5.write };
    let mut list = vec![Register::new(p5.cesr, Kind::Bits { valid: half << 16 | half, ignored: 0 })];
    list.extend(p5.counter.span().map(|msr| Register::new(msr, counter)));
    list
}

fn of_p4(p4: &P4Registers, width: u32) -> Vec<Register> {
    let counter = Kind::Counter { width, write: CounterWrite::Full };
    let bits = |valid: u64| Kind::Bits { valid, ignored: 0 };
    let mut list: Vec<_> = p4.counter.span().map(|msr| Register::new(msr, counter)).collect();
    list.extend(p4.cccr.span().map(|msr| Register::new(msr, bits(p4.cccr_valid.into()))));
    list.extend(p4.escrs.iter().map(|msr| Register::new(*msr, bits(p4.escr_valid.into()))));
    list.extend(p4.replay.map(|(msr, valid)| Register::new(msr, bits(valid))));
    list
}

fn of_p6(p6: &P6Registers, width: u32) -> Vec<Register> {
    let counter = |write| Kind::Counter { width, write };
    let evntsel = |i: u32| {
        let hidden = if i == 0 { 0 } else { p6.evntsel_first_only };
        Kind::Bits { valid: p6.evntsel_valid & !hidden, ignored: p6.evntsel_ignored }
    };
    let at = |block: vpmu::Block, i: u32| block.base + block.stride * i;
    let mut list = Vec::new();
    for i in 0..p6.evntsel.count {
        list.push(Register::new(at(p6.evntsel, i), evntsel(i)).at_reset(p6.evntsel_reset));
        list.push(Register::new(at(p6.counter, i), counter(p6.write)));
        if let Some(full) = p6.full_width {
            let register = Register::new(at(full, i), counter(CounterWrite::FullChecked));
            list.push(register.other_name_of(at(p6.counter, i)));
        }
        if let Some((evntsels, counters)) = p6.alias
            && i < evntsels.count
        {
            list.push(Register::new(at(evntsels, i), evntsel(i)).other_name_of(at(p6.evntsel, i)));
            list.push(Register::new(at(counters, i), counter(p6.write)).other_name_of(at(p6.counter, i)));
        }
    }
    let mut bits = (1u64 << p6.counter.count) - 1;
    if let Some(fixed) = p6.fixed {
        bits |= ((1 << fixed.counter.count) - 1) << 32;
        let kind = Kind::Counter { width: fixed.width, write: CounterWrite::FullChecked };
        list.extend(fixed.counter.span().map(|msr| Register::new(msr, kind)));
        list.push(Register::new(fixed.control, Kind::Bits { valid: fixed.control_valid, ignored: 0 }));
    }
    if let Some(global) = p6.global {
        let ignored = if global.forgiving { !bits } else { 0 };
        let action = |valid| Kind::Action { valid, ignored };
        let read_only = Kind::ReadOnly { silently: global.forgiving };
        let control = Register::new(global.control, Kind::Bits { valid: bits, ignored });
        list.push(control.at_reset(global.control_reset));
        list.push(Register::new(global.status, read_only));
        list.push(Register::new(global.clear, action(bits | global.clear_also)));
        list.extend(global.set.map(|msr| Register::new(msr, action(bits))));
        list.extend(global.in_use.map(|msr| Register::new(msr, read_only)));
    }
    list.extend(p6.capabilities.map(|value| Register::new(0x345, Kind::Constant).at_reset(value)));
    list.extend(p6.constant.iter().map(|(msr, value)| Register::new(*msr, Kind::Constant).at_reset(*value)));
    list.extend(p6.tsc.map(|msr| Register::new(msr, Kind::Tsc)));
    list
}

/// Every number that any family has a PMU register at, from the manuals; less those of the P5, of which two are KVM's
/// for all others.
pub(crate) fn numbers() -> Vec<u32> {
    let spans = [
        // Counters of P6 and later, their full-width numbers, event selects.
        0xC1..0xC9,
        0x4C1..0x4C9,
        0x186..0x18E,
        // P4's counters, among them the fixed ones of others; CCCRs; ESCRs; replay tagging.
        0x300..0x312,
        0x360..0x372,
        0x3A0..0x3E2,
        0x3F1..0x3F3,
        // IA32_PERF_CAPABILITIES, fixed counter control, global registers.
        0x345..0x346,
        0x38D..0x393,
        // AMD's.
        0xC001_0000..0xC001_0008,
        0xC001_0200..0xC001_020C,
        0xC000_0300..0xC000_0304,
    ];
    spans.into_iter().flatten().collect()
}
