//! How every model's counters count, by a source whose readings are known.

use vpmu::{Enable, Model, Registers};

use crate::programming::{Counter, Overflow, RDPMC, counters, mask, rest};
use crate::running::pmu;
use crate::script::{Script, check};
use crate::sources::StepPmu;

const STEP: u64 = StepPmu::STEP;

/// Alone, and under global control.
pub(crate) fn counts(model: Model) {
    let list = counters(model);
    let mut script = Script::default();
    script.all(&rest(model));
    for counter in &list {
        counts_by_itself(&mut script, counter);
    }
    if let Registers::P6(p6) = model.facts().registers
        && let Some(global) = p6.global
    {
        freezes(&mut script, &list, global.control, global.control_reset);
    }
    let dump = check(pmu(model), &script);
    let pmu = dump.pmu.unwrap();
    // An event that the processor does not have is all that can stop these.
    let by_right = match model.facts().registers {
        Registers::P5(p5) => !p5.control_field,
        Registers::P6(p6) => p6.enable == Enable::Always,
        _ => false,
    };
    assert!(by_right || (pmu.lost, pmu.registers.lost) == (0, 0), "{model}: everything could be counted");
    assert_eq!(pmu.registers.overflows, list.len() as u64, "{model}: each wrapped once");
}

/// An access to a register is an instruction, which a counter of those counts beside the source's steps.
pub(crate) fn itself(counter: &Counter) -> u64 {
    u64::from(counter.per_round == Some(2))
}

fn counts_by_itself(script: &mut Script, counter: &Counter) {
    let msr = counter.msr;
    let step = STEP + itself(counter);
    script.writes(msr, 100);
    script.all(&counter.on);
    script.reads(msr, 100 + step);
    script.reads(msr, 100 + 2 * step);
    let mut value = 100 + 2 * step;
    if let Some(number) = counter.rdpmc {
        value += STEP;
        script.reads(RDPMC + number, value);
    }
    // Written while it counts.
    script.writes(msr, 1000);
    script.reads(msr, 1000 + step);
    // At its width.
    script.writes(msr, mask(counter.width) - step + 1);
    script.reads(msr, 0);
    if let Some((status, bit)) = counter.overflow.read() {
        script.want_bits(status, bit, bit);
        script.all(&[counter.overflow.clear().unwrap()]);
        script.want_bits(status, 0, bit);
    }
    script.writes(msr, 50);
    script.reads(msr, 50 + step);
    if counter.off.is_empty() {
        return;
    }
    // The write that stops it reads it last.
    script.all(&counter.off);
    script.reads(msr, 50 + 2 * step);
    script.reads(msr, 50 + 2 * step);
    if let Some(number) = counter.rdpmc {
        script.reads(RDPMC + number, 50 + 2 * step);
    }
    script.writes(msr, 0);
}

/// GLOBAL_CTRL stops and starts them.
fn freezes(script: &mut Script, list: &[Counter], control: u32, reset: u64) {
    for counter in list {
        let bit = match counter.overflow {
            Overflow::Global { bit, .. } => bit,
            _ => return,
        };
        let step = STEP + itself(counter);
        script.all(&counter.on);
        script.writes(control, 0);
        script.writes(counter.msr, 10);
        script.reads(counter.msr, 10);
        script.writes(control, bit);
        script.reads(counter.msr, 10 + step);
        // Another one's bit is not enough.
        script.writes(control, (reset | 1) & !bit);
        script.reads(counter.msr, 10 + 2 * step);
        script.reads(counter.msr, 10 + 2 * step);
        script.all(&counter.off);
        script.writes(counter.msr, 0);
        script.writes(control, reset);
    }
}
