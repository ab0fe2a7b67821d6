//! Overflows: the status bit before the interrupt, the interrupt once for each, as LVTPC says, on the vCPU whose counter it is;
//! while the guest works, halts and is dumped.
//!
//! With counts of [`StepPmu`] an overflow is at a known access, with those of [`ClockPmu`] it comes at any time and has to
//! get the vCPU out of its guest.

use libtest_mimic::Trial;
use perfvisor::devices::ports::Stop;
use perfvisor::dump::VcpuDump;
use perfvisor::machine::Machine;
use vpmu::{Model, PmuConfig};

use crate::guest::{Given, Program, Results, Step, pmu, run_programs};
use crate::guest_code::{VECTOR, nmis, vectors};
use crate::programming::{Counter, counters};
use crate::sources::{ClockPmu, StepPmu};

const APIC_BASE: u32 = 0x1B;
const X2APIC: u64 = 0xFEE0_0C00;
const EOI: u32 = 0x80B;
const SPURIOUS: u32 = 0x80F;
const ICR: u32 = 0x830;
const LVTPC: u32 = 0x834;
const NMI: u64 = 0x400;
const MASKED: u64 = 1 << 16;

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: String, test: fn(Model), model| {
        Trial::test(name, move || {
            test(model);
            Ok(())
        })
    };
    let mut trials = Vec::new();
    for model in Model::ALL.into_iter().filter(|model| interrupting(*model).next().is_some()) {
        for (name, test) in [
            ("interrupts_once_each", each as fn(Model)),
            ("interrupts_as_lvtpc_says", as_lvtpc_says),
            ("interrupts_while_it_works_halts_and_is_dumped", at_any_time),
        ] {
            trials.push(trial(format!("family_{model}_{name}"), test, model));
        }
    }
    for model in [Model::P6, Model::P4M3, Model::AmdV2, Model::IntelV5] {
        trials.push(trial(format!("smp_{model}_each_vcpu_has_its_own"), each_its_own, model));
    }
    trials
}

/// The counters that can interrupt.
fn interrupting(model: Model) -> impl Iterator<Item = Counter> {
    let interrupts = model.facts().features & perfctr_abi::layout::feature::PCINT != 0;
    counters(model).into_iter().filter(move |_| interrupts)
}

/// Switch the local APIC on in x2APIC mode, with this in LVTPC.
fn apic(lvtpc: u64) -> [Step; 4] {
    [
        Step::WriteMsr(APIC_BASE, X2APIC | 1 << 8),
        Step::WriteMsr(SPURIOUS, 0x1FF),
        Step::WriteMsr(LVTPC, lvtpc),
        Step::ReadMsr(LVTPC),
    ]
}

/// What `counter` holds when it has so many events to go.
fn before(counter: &Counter, events: u64) -> Step {
    Step::WriteMsr(counter.msr, 0u64.wrapping_sub(events) & u64::MAX >> (64 - counter.width))
}

/// A handler that looks at LVTPC and at the status, clears that, has the counter overflow again after `period`, and ends the
/// interrupt. LVTPC is written if the handler is to unmask.
fn handler(counter: &Counter, period: u64, lvtpc: Option<u64>) -> Vec<Step> {
    let mut steps = vec![Step::ReadMsr(LVTPC)];
    steps.extend(counter.overflow.read().map(|(read, _)| read));
    steps.extend(counter.overflow.clear());
    steps.extend(lvtpc.map(|lvtpc| Step::WriteMsr(LVTPC, lvtpc)));
    steps.push(Step::WriteMsr(EOI, 0));
    steps.push(before(counter, period));
    steps
}

/// One run of a handler found the interrupt's status, and LVTPC as the processor leaves it.
fn check_handled(model: Model, counter: &Counter, lvtpc: u64, handled: &[Given]) {
    let masked = if model.facts().lvtpc_masks { MASKED } else { 0 };
    assert_eq!(handled[0], Given::Value(lvtpc | masked), "{model}: LVTPC");
    if let Some((_, bit)) = counter.overflow.read() {
        assert_ne!(handled[1].value() & bit, 0, "{model}: the status is there before the interrupt");
    }
    assert!(!handled.contains(&Given::Fault), "{model}: {handled:x?}");
}

fn pmis(dump: &VcpuDump) -> u64 {
    dump.pmu.as_ref().unwrap().pmis
}

/// Each counter in turn overflows at every second access.
fn each(model: Model) {
    const ROUNDS: usize = 5;
    let period = 2 * StepPmu::STEP;
    for counter in interrupting(model) {
        for (lvtpc, count) in [(NMI, nmis(0)), (VECTOR, vectors(0))] {
            let mut main = apic(lvtpc).to_vec();
            main.push(before(&counter, period));
            main.extend(&counter.on_int);
            main.extend([Step::ReadMsr(counter.msr); 2 * ROUNDS]);
            main.extend(&counter.off);
            main.push(Step::Load(count));
            let program = Program { main, handler: handler(&counter, period, Some(lvtpc)) };
            let steps = program.handler.len();
            let (results, dumps) = run_programs(pmu(model), &[program], |_| StepPmu::default(), |_| None);
            let Results { main, handler } = &results[0];
            assert_eq!(main.last(), Some(&Given::Value(ROUNDS as u64)), "{model} {:#x}", counter.msr);
            assert_eq!((handler.len(), pmis(&dumps[0])), (ROUNDS * steps, ROUNDS as u64), "{model}");
            for handled in handler.chunks(steps) {
                check_handled(model, &counter, lvtpc, handled);
            }
        }
    }
}

/// Masked: no interrupt, and the status is there. A handler that does not unmask: one interrupt where delivery masks.
fn as_lvtpc_says(model: Model) {
    let counter = interrupting(model).last().unwrap();
    let period = 2 * StepPmu::STEP;
    let masks = model.facts().lvtpc_masks;
    for (lvtpc, delivered) in [(NMI | MASKED, 0), (VECTOR | MASKED, 0), (NMI, 1), (VECTOR, 1)] {
        let mut main = apic(lvtpc).to_vec();
        main.extend(&counter.on_int);
        for _ in 0..3 {
            main.push(before(&counter, period));
            main.extend([Step::ReadMsr(counter.msr); 2]);
        }
        main.extend(counter.overflow.read().map(|(read, _)| read));
        main.extend(&counter.off);
        main.extend([Step::ReadMsr(LVTPC), Step::Load(nmis(0)), Step::Load(vectors(0))]);
        let program = Program { main, handler: vec![Step::WriteMsr(EOI, 0)] };
        let (results, dumps) = run_programs(pmu(model), &[program], |_| StepPmu::default(), |_| None);
        let delivered = if masks { delivered } else { 3 * delivered };
        let main = &results[0].main;
        let end = &main[main.len() - 3..];
        let masked = if masks { MASKED } else { 0 };
        assert_eq!(end[0], Given::Value(lvtpc | masked * u64::from(delivered > 0)), "{model}");
        let counts = if lvtpc & NMI != 0 { [delivered, 0] } else { [0, delivered] };
        assert_eq!(end[1..], counts.map(Given::Value), "{model} LVTPC {lvtpc:#x}");
        assert_eq!(pmis(&dumps[0]), 3, "{model}: each was told to the local APIC");
        if let Some((_, bit)) = counter.overflow.read() {
            let status = main[main.len() - 4 - counter.off.len()];
            assert_ne!(status.value() & bit, 0, "{model}: status under a mask");
        }
    }
}

/// A program that has `counter` overflow every `period` nanoseconds until `rounds` interrupts have been handled.
fn by_the_clock(
    counter: &Counter,
    period: u64,
    rounds: u64,
    lvtpc: u64,
    wait: fn(u64, u64) -> Step,
) -> Program {
    let count = if lvtpc & NMI != 0 { nmis(0) } else { vectors(0) };
    let mut main = apic(lvtpc).to_vec();
    main.push(before(counter, period));
    main.extend(&counter.on_int);
    main.push(wait(count, rounds));
    main.extend(&counter.off);
    // One that overflowed before it was stopped has been delivered by now.
    main.push(Step::Load(count));
    Program { main, handler: handler(counter, period, Some(lvtpc)) }
}

fn at_any_time(model: Model) {
    const ROUNDS: u64 = 10;
    const PERIOD: u64 = 300_000;
    let counter = interrupting(model).next().unwrap();
    let storm: fn(&Machine) -> Option<Stop> = |machine| {
        loop {
            if let Some(stop) = machine.stop() {
                return Some(stop);
            }
            // An end between the question and the answer closes the channel.
            machine.remotes().iter().for_each(|remote| drop(remote.dump().recv()));
        }
    };
    for (lvtpc, wait, meanwhile) in [
        (NMI, Step::Await as fn(u64, u64) -> Step, (|_| None) as fn(&Machine) -> Option<Stop>),
        (VECTOR, Step::HaltUntil, |_| None),
        (NMI, Step::HaltUntil, storm),
        (VECTOR, Step::Await, storm),
    ] {
        let program = by_the_clock(&counter, PERIOD, ROUNDS, lvtpc, wait);
        let steps = program.handler.len();
        let (results, dumps) = run_programs(pmu(model), &[program], |_| ClockPmu::default(), meanwhile);
        let Results { main, handler } = &results[0];
        let handled = main[main.len() - 1].value();
        assert!(handled >= ROUNDS, "{model}: {handled}");
        assert_eq!(handler.len(), handled as usize * steps, "{model}");
        assert_eq!(pmis(&dumps[0]), handled, "{model}: none lost, none doubled");
        for handled in handler.chunks(steps) {
            check_handled(model, &counter, lvtpc, handled);
        }
    }
}

/// Four vCPUs with different periods, one of them with its LVTPC masked, and one without a counter.
fn each_its_own(model: Model) {
    const PERIODS: [u64; 4] = [400_000, 250_000, 600_000, 0];
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
            // Those that are not interrupted have to see none for as long as the others are.
            main.extend([Step::Add(ENDED, 1), Step::Await(ENDED, PERIODS.len() as u64)]);
            main.extend(counter.overflow.read().map(|(read, _)| read));
            main.extend(&counter.off);
            main.push(Step::Load(nmis(cpu as u64)));
            Program { main, handler: handler(&counter, period, Some(lvtpc)) }
        })
        .collect();
    let config: PmuConfig = pmu(model);
    let (results, dumps) = run_programs(config, &programs, |_| ClockPmu::default(), |_| None);
    for (cpu, (results, dump)) in results.iter().zip(&dumps).enumerate() {
        let handled = results.main[results.main.len() - 1].value();
        let steps = programs[cpu].handler.len();
        assert_eq!(results.handler.len(), handled as usize * steps, "{model} vCPU {cpu}");
        let (least, told) = match cpu {
            MASKED_ONE => (0, 1),
            3 => (0, 0),
            _ => (8 + cpu as u64, handled),
        };
        assert!(handled >= least && (least > 0 || handled == 0), "{model} vCPU {cpu}: {handled}");
        assert_eq!(pmis(dump), told, "{model} vCPU {cpu}");
        if cpu == MASKED_ONE
            && let Some((_, bit)) = counter.overflow.read()
        {
            let status = results.main[results.main.len() - 2 - counter.off.len()];
            assert_ne!(status.value() & bit, 0, "{model}: the status of the masked one");
        }
    }
}
