//! Overflows on several vCPUs, and with the local APIC in xAPIC mode.

use libtest_mimic::Trial;
use vpmu::Model;

use crate::guest::{Given, Program, Step};
use crate::guest_code::{VECTOR, nmis, vectors};
use crate::overflow::{APIC_BASE, MASKED, NMI, X2APIC, apic, before, handler, interrupting, period, pmis};
use crate::running::{pmu, run_programs};
use crate::sources::{ClockPmu, StepPmu};

const ICR: u32 = 0x830;
/// Registers of the local APIC in xAPIC mode.
const XAPIC: u64 = 0xFEE0_0000;
const XAPIC_EOI: u64 = XAPIC + 0xB0;
const XAPIC_SPURIOUS: u64 = XAPIC + 0xF0;
const XAPIC_LVTPC: u64 = XAPIC + 0x340;

pub(crate) fn trials() -> Vec<Trial> {
    let models = [Model::P6, Model::P4M3, Model::AmdV2, Model::IntelV5];
    let of = |name, test: fn(Model)| {
        models.map(|model| {
            Trial::test(format!("smp_{model}_{name}"), move || {
                test(model);
                Ok(())
            })
        })
    };
    [of("each_vcpu_has_its_own", each_its_own), of("in_xapic_mode", in_xapic_mode)]
        .into_iter()
        .flatten()
        .collect()
}

/// Delivery does not mask there, whatever the processor (see `perfvisor::vcpu::lvtpc`): each overflow interrupts.
fn in_xapic_mode(model: Model) {
    const ROUNDS: u64 = 3;
    let counter = interrupting(model).next().unwrap();
    let period = period(&counter);
    let mut main = vec![Step::Store32(XAPIC_SPURIOUS, 0x1FF)];
    for lvtpc in [NMI, VECTOR] {
        main.extend([Step::Store32(XAPIC_LVTPC, lvtpc as u32), before(&counter, period)]);
        main.extend(&counter.on_int);
        main.extend([Step::ReadMsr(counter.msr); 2 * ROUNDS as usize]);
        main.extend(&counter.off);
        main.push(Step::Load32(XAPIC_LVTPC));
    }
    main.extend([Step::Load(nmis(0)), Step::Load(vectors(0))]);
    let program =
        Program { main, handlers: vec![vec![before(&counter, period), Step::Store32(XAPIC_EOI, 0)]] };
    let (results, dumps) = run_programs(pmu(model), &[program], |_| StepPmu::default(), |_| None);
    let main = &results[0].main;
    let last = [VECTOR, ROUNDS, ROUNDS].map(Given::Value);
    assert_eq!(main[main.len() - 3..], last, "{model}: LVTPC, NMIs, vectors");
    assert_eq!(pmis(&dumps[0]), 2 * ROUNDS, "{model}");
}

/// Four vCPUs with different periods, one of them with its LVTPC masked, and one without a counter.
fn each_its_own(model: Model) {
    // The masked one's is over long before it stops its counter.
    // Nanoseconds: much longer than a handler takes, also in the lab, or the guest does nothing else.
    const PERIODS: [u64; 4] = [4_000_000, 2_500_000, 1000, 0];
    const MASKED_ONE: usize = 2;
    const ENDED: u64 = 0x30_0000;
    let counter = interrupting(model).next().unwrap();
    let programs: Vec<Program> = PERIODS
        .iter()
        .enumerate()
        .map(|(cpu, &period)| {
            let masked = cpu == MASKED_ONE;
            let lvtpc = if masked { NMI | MASKED } else { NMI };
            let mut main = apic(lvtpc).to_vec();
            if cpu == 0 {
                // INIT and SIPI with vector 8, to all others.
                main.extend([Step::WriteMsr(ICR, 0xC_4500), Step::WriteMsr(ICR, 0xC_4608)]);
            } else {
                main[0] = Step::WriteMsr(APIC_BASE, X2APIC);
            }
            if period != 0 {
                main.push(before(&counter, period));
                main.extend(&counter.on_int);
            }
            if period != 0 && !masked {
                main.push(Step::Await(nmis(cpu as u64), 8 + cpu as u64));
            }
            if masked {
                main.push(Step::Spin(10_000));
            }
            // Those that are not interrupted have to see none for as long as the others are.
            main.extend([Step::Add(ENDED, 1), Step::Await(ENDED, PERIODS.len() as u64)]);
            main.extend(counter.overflow.read().map(|(read, _)| read));
            main.extend(&counter.off);
            main.push(Step::Load(nmis(cpu as u64)));
            Program { main, handlers: vec![handler(&counter, period, lvtpc)] }
        })
        .collect();
    let (results, dumps) = run_programs(pmu(model), &programs, |_| ClockPmu::default(), |_| None);
    for (cpu, (results, dump)) in results.iter().zip(&dumps).enumerate() {
        let handled = results.main[results.main.len() - 1].value();
        let steps = programs[cpu].handlers[0].len();
        assert_eq!(results.handler.len(), handled as usize * steps, "{model} vCPU {cpu}");
        let (least, signalled) = match cpu {
            MASKED_ONE => (0, 1),
            3 => (0, 0),
            _ => (8 + cpu as u64, handled),
        };
        assert!(handled >= least && (least > 0 || handled == 0), "{model} vCPU {cpu}: {handled}");
        assert_eq!(pmis(dump), signalled, "{model} vCPU {cpu}");
        if cpu == MASKED_ONE
            && let Some((_, bit)) = counter.overflow.read()
        {
            let status = results.main[results.main.len() - 2 - counter.off.len()];
            assert_ne!(status.value() & bit, 0, "{model}: the status of the masked one");
        }
    }
}
