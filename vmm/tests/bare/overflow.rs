//! Overflows: the status bit before the interrupt, the interrupt once for each, as LVTPC says;
//! while the guest works, halts and is dumped.
//!
//! With counts of [`StepPmu`] an overflow is at a known access, with those of [`ClockPmu`] it comes at any time and has to
//! get the vCPU out of its guest.

use std::slice::from_ref;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use perfvisor::devices::stop::Stop;
use perfvisor::dump::VcpuDump;
use perfvisor::machine::Machine;
use vpmu::Model;

use crate::counting::itself;
use crate::guest::{Given, Program, Step};
use crate::guest_code::{VECTOR, nmis, vectors};
use crate::programming::{Counter, Overflow, counters};
use crate::running::{pmu, run_programs};
use crate::sources::{ClockPmu, StepPmu};

pub(crate) const APIC_BASE: u32 = 0x1B;
pub(crate) const X2APIC: u64 = 0xFEE0_0C00;
const EOI: u32 = 0x80B;
pub(crate) const SPURIOUS: u32 = 0x80F;
pub(crate) const LVTPC: u32 = 0x834;
pub(crate) const NMI: u64 = 0x400;
pub(crate) const MASKED: u64 = 1 << 16;

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
    trials
}

/// The counters that can interrupt.
pub(crate) fn interrupting(model: Model) -> impl Iterator<Item = Counter> {
    let interrupts = model.facts().features & perfctr_abi::layout::feature::PCINT != 0;
    counters(model).into_iter().filter(move |_| interrupts)
}

/// Switch the local APIC on in x2APIC mode, with this in LVTPC.
pub(crate) fn apic(lvtpc: u64) -> [Step; 4] {
    [
        Step::WriteMsr(APIC_BASE, X2APIC | 1 << 8),
        Step::WriteMsr(SPURIOUS, 0x1FF),
        Step::WriteMsr(LVTPC, lvtpc),
        Step::ReadMsr(LVTPC),
    ]
}

/// What `counter` holds when it has so many events to go.
pub(crate) fn before(counter: &Counter, events: u64) -> Step {
    Step::WriteMsr(counter.msr, 0u64.wrapping_sub(events) & u64::MAX >> (64 - counter.width))
}

/// A handler that looks at LVTPC and at the status, clears that, unmasks, ends the interrupt, and has the counter overflow
/// again after `period`.
pub(crate) fn handler(counter: &Counter, period: u64, lvtpc: u64) -> Vec<Step> {
    let mut steps = vec![Step::ReadMsr(LVTPC)];
    steps.extend(counter.overflow.read().map(|(read, _)| read));
    steps.extend(counter.overflow.clear());
    steps.extend([Step::WriteMsr(LVTPC, lvtpc), Step::WriteMsr(EOI, 0), before(counter, period)]);
    steps
}

/// One run of a handler found the interrupt's status, and LVTPC as the processor leaves it. `stopped`: the counter may have
/// overflowed just before the write that stopped it, which is the one that clears the status of a P4.
fn check_handled(model: Model, counter: &Counter, lvtpc: u64, handled: &[Given], stopped: bool) {
    let masked = if model.facts().lvtpc_masks { MASKED } else { 0 };
    assert_eq!(handled[0], Given::Value(lvtpc | masked), "{model}: LVTPC");
    let cleared = stopped && matches!(counter.overflow, Overflow::Own { .. });
    if let Some((_, bit)) = counter.overflow.read()
        && !cleared
    {
        assert_ne!(handled[1].value() & bit, 0, "{model}: the status is there before the interrupt");
    }
    assert!(!handled.contains(&Given::Fault), "{model}: {handled:x?}");
}

pub(crate) fn pmis(dump: &VcpuDump) -> u64 {
    dump.pmu.as_ref().unwrap().pmis
}

/// Two accesses to a counter's registers.
pub(crate) fn period(counter: &Counter) -> u64 {
    2 * (StepPmu::STEP + itself(counter))
}

/// Each counter in turn overflows at every second access.
fn each(model: Model) {
    const ROUNDS: u64 = 4;
    let list: Vec<Counter> = interrupting(model).collect();
    let (mut main, mut handlers, mut signalled) = (apic(NMI).to_vec(), Vec::new(), 0);
    for counter in &list {
        let period = period(counter);
        for (lvtpc, counts) in [(NMI, nmis(0)), (VECTOR, vectors(0))] {
            main.extend([
                Step::Handler(handlers.len()),
                Step::WriteMsr(LVTPC, lvtpc),
                Step::Store(counts, 0),
            ]);
            main.push(before(counter, period));
            main.extend(&counter.on_int);
            main.extend([Step::ReadMsr(counter.msr); 2 * ROUNDS as usize]);
            main.extend(&counter.off);
            main.push(Step::Await(counts, ROUNDS));
            handlers.push(handler(counter, period, lvtpc));
            signalled += ROUNDS;
        }
    }
    let program = Program { main, handlers };
    let (results, dumps) = run_programs(pmu(model), from_ref(&program), |_| StepPmu::default(), |_| None);
    assert!(!results[0].main.contains(&Given::Fault), "{model}");
    assert_eq!(pmis(&dumps[0]), signalled, "{model}");
    let mut handled = &results[0].handler[..];
    for (i, handler) in program.handlers.iter().enumerate() {
        let lvtpc = if i % 2 == 0 { NMI } else { VECTOR };
        for _ in 0..ROUNDS {
            let (this, others) = handled.split_at(handler.len());
            check_handled(model, &list[i / 2], lvtpc, this, false);
            handled = others;
        }
    }
    assert!(handled.is_empty(), "{model}: {handled:x?}");
}

/// Masked: no interrupt, and the status is there. A handler that does not unmask: one interrupt where delivery masks.
fn as_lvtpc_says(model: Model) {
    const OVERFLOWS: u64 = 3;
    let counter = interrupting(model).last().unwrap();
    let period = period(&counter);
    let (status, bit) = counter.overflow.read().unwrap_or((Step::Load(0), 0));
    let (mut main, mut wanted) = (apic(NMI).to_vec(), Vec::new());
    for (lvtpc, delivers) in [(NMI | MASKED, false), (VECTOR | MASKED, false), (NMI, true), (VECTOR, true)] {
        main.extend([Step::WriteMsr(LVTPC, lvtpc), Step::Store(nmis(0), 0), Step::Store(vectors(0), 0)]);
        main.extend(counter.overflow.clear());
        main.extend(&counter.on_int);
        for _ in 0..OVERFLOWS {
            main.push(before(&counter, period));
            main.extend([Step::ReadMsr(counter.msr); 2]);
        }
        main.push(status);
        main.extend(&counter.off);
        main.extend([Step::ReadMsr(LVTPC), Step::Load(nmis(0)), Step::Load(vectors(0))]);
        let masks = delivers && model.facts().lvtpc_masks;
        let count = if masks { 1 } else { OVERFLOWS * u64::from(delivers) };
        let counts = if lvtpc & NMI != 0 { [count, 0] } else { [0, count] };
        let left = if masks { lvtpc | MASKED } else { lvtpc };
        wanted.push((main.len(), lvtpc, [left, counts[0], counts[1]].map(Given::Value)));
    }
    let program = Program { main, handlers: vec![vec![Step::WriteMsr(EOI, 0)]] };
    let (results, dumps) = run_programs(pmu(model), &[program], |_| StepPmu::default(), |_| None);
    for (end, lvtpc, wanted) in &wanted {
        let given = &results[0].main[..*end];
        let (given, last) = given.split_at(end - 3);
        assert_eq!(last, wanted, "{model} LVTPC {lvtpc:#x}: what is left of it, NMIs, vectors");
        let status = given[given.len() - 1 - counter.off.len()].value();
        assert_eq!(status & bit, bit, "{model} LVTPC {lvtpc:#x}: the status");
    }
    let signalled = OVERFLOWS * wanted.len() as u64;
    assert_eq!(pmis(&dumps[0]), signalled, "{model}: each reached the local APIC");
}

/// How a guest waits until memory at an address holds so much.
type Wait = fn(u64, u64) -> Step;

/// `counter` overflows every so often, by the clock, until the guest has handled so many interrupts.
fn at_any_time(model: Model) {
    const ROUNDS: u64 = 10;
    const PERIOD: u64 = 300_000;
    let counter = interrupting(model).next().unwrap();
    let phases: [(u64, u64, Wait); 4] = [
        (NMI, nmis(0), Step::Await),
        (VECTOR, vectors(0), Step::HaltUntil),
        (NMI, nmis(0), Step::HaltUntil),
        (VECTOR, vectors(0), Step::Await),
    ];
    let (mut main, mut handlers, mut ends) = (apic(NMI).to_vec(), Vec::new(), Vec::new());
    for (lvtpc, counts, wait) in phases {
        main.extend([Step::Handler(handlers.len()), Step::WriteMsr(LVTPC, lvtpc), Step::Store(counts, 0)]);
        main.push(before(&counter, PERIOD));
        main.extend(&counter.on_int);
        main.push(wait(counts, ROUNDS));
        main.extend(&counter.off);
        // One that overflowed before it was stopped has been delivered by now.
        main.push(Step::Load(counts));
        ends.push((main.len() - 1, lvtpc));
        handlers.push(handler(&counter, PERIOD, lvtpc));
    }
    let program = Program { main, handlers };
    let quiet: fn(&Machine) -> Option<Stop> = |_| None;
    for meanwhile in [quiet, dump_storm] {
        let (results, dumps) =
            run_programs(pmu(model), from_ref(&program), |_| ClockPmu::default(), meanwhile);
        let mut handled = &results[0].handler[..];
        let mut all = 0;
        for &(end, lvtpc) in &ends {
            let count = results[0].main[end].value();
            assert!(count >= ROUNDS, "{model}: {count}");
            all += count;
            for nth in 1..=count {
                let (this, others) = handled.split_at(program.handlers[0].len());
                check_handled(model, &counter, lvtpc, this, nth == count);
                handled = others;
            }
        }
        assert!(handled.is_empty(), "{model}");
        assert_eq!(pmis(&dumps[0]), all, "{model}: none lost, none doubled");
    }
}

/// Dump after dump until the machine stops.
fn dump_storm(machine: &Machine) -> Option<Stop> {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if let Some(stop) = machine.stop() {
            return Some(stop);
        }
        // One that ends between the question and the answer closes the channel.
        machine.remotes().iter().for_each(|remote| drop(remote.dump().recv()));
    }
    panic!("the guest did not stop within 30 s");
}
