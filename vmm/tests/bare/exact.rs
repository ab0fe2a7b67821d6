//! To the instruction: code of known length against host counters, by perf and by the host module. Where this host has none
//! the trials are not run; `cargo xtask test` runs them in the lab machine, whose counters are exact.
//!
//! The numbers below are instructions of the interpreter in `guest_code.rs`. WRMSR and RDMSR of a counter's registers are
//! intercepted and do not retire in the guest: perfvisor counts them, as hardware does: the WRMSR that starts a counter is not
//! counted, and RDMSR sees itself.

use std::sync::RwLock;

use libtest_mimic::Trial;
use perfvisor::dump::VcpuDump;
use perfvisor::vcpu;
use vpmu::module::{self, ModulePmu};
use vpmu::perf::{PerfPmu, probe};
use vpmu::{Host, Model, PmuConfig};

use crate::guest::{Given, Program, Results, Step};
use crate::guest_code::nmis;
use crate::overflow::{APIC_BASE, LVTPC, NMI, SPURIOUS, X2APIC, before, interrupting};
use crate::programming::{Counter, counters, rest};
use crate::running::{pmu, run_programs};

/// From the WRMSR that starts a counter to an RDMSR after it, to the first instruction of a loop after it; and from RDMSR to RDMSR
/// with a loop between them, less the loop.
const START_TO_READ: u64 = 17 + 1;
const START_TO_LOOP: u64 = 15;
const AROUND_LOOP: u64 = 36 + 1;
/// The steps RDMSR, CPUID and OUT: the interpreter's instructions and the one that leaves the guest, which KVM executes, or perfvisor.
const READ_STEP: u64 = 22;
const CPUID_STEP: u64 = 23;
const OUT_STEP: u64 = 18;
/// From a handler's first instruction to the third step of its script.
const HANDLER_TO_READ: u64 = 65 + 1;
/// A round is DEC and JNZ; so far from the first one is the second.
const SECOND: u64 = 3;

/// Who counts.
#[derive(Clone, Copy, Debug)]
enum Source {
    Perf,
    Module,
}

/// Several machines may count by perf at a time, and none by perf beside one that counts with the module.
static COUNTERS: RwLock<()> = RwLock::new(());

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Perf => "perf",
            Self::Module => "module",
        }
    }

    /// Why it cannot be used here.
    fn missing(self) -> Option<String> {
        match self {
            Self::Perf => probe().err().map(|error| error.to_string()),
            Self::Module => module::hold().err().map(|error| error.to_string()),
        }
    }

    /// By how many events an overflow is late where the next event is to be the last: perf sets no counter to less than
    /// two before its overflow (`x86_perf_event_set_period`, arch/x86/events/core.c).
    fn late_after_one(self) -> u64 {
        match self {
            Self::Perf => 1,
            Self::Module => 0,
        }
    }

    /// Whether instructions that KVM executes in the guest's place are counted: perf does not see them.
    fn sees_emulated(self) -> bool {
        matches!(self, Self::Module)
    }

    fn run(self, model: Model, program: Program) -> (Vec<Results>, Vec<VcpuDump>) {
        let config = PmuConfig { host: Host::detect(), ..pmu(model) };
        match self {
            Self::Perf => {
                let _several = COUNTERS.read().unwrap();
                run_programs(config, &[program], perf, |_| None)
            }
            Self::Module => {
                let _alone = COUNTERS.write().unwrap();
                let hold = module::hold().unwrap();
                let info = hold.info();
                let counting = move |offset| {
                    let mut module = ModulePmu::new(info, vcpu::signal());
                    module.set_tsc_offset(offset);
                    module
                };
                run_programs(config, &[program], counting, |_| None)
            }
        }
    }
}

/// A source that cannot be used is named with the reason; a `list` has its trials all the same.
pub(crate) fn trials(list: bool) -> Vec<Trial> {
    [Source::Perf, Source::Module].into_iter().flat_map(|source| trials_by(source, list)).collect()
}

fn trials_by(source: Source, list: bool) -> Vec<Trial> {
    if let Some(reason) = source.missing()
        && !list
    {
        let none = format!("exact_counts_and_overflows_by_{}", source.name());
        println!("not run: {none}: {reason}");
        return vec![Trial::test(none, || Ok(())).with_ignored_flag(true)];
    }
    let trial = |name, test: fn(Source, Model), model| {
        Trial::test(format!("exact_{model}_{name}_by_{}", source.name()), move || {
            test(source, model);
            Ok(())
        })
    };
    let countable = |model: &Model| countable(counters(*model)).next().is_some();
    let models = || Model::ALL.into_iter().filter(countable);
    let overflowing = models().filter(|model| interrupting(*model).next().is_some());
    let retiring = models().filter(|model| retired(*model).is_some());
    models()
        .map(|model| trial("counts", counts, model))
        .chain(retiring.map(|model| trial("emulated", emulated, model)))
        .chain(overflowing.map(|model| trial("overflows", overflows, model)))
        .collect()
}

fn perf(offset: u64) -> PerfPmu {
    let mut perf = PerfPmu::new();
    perf.set_tsc_offset(offset);
    perf.set_kick_signal(vcpu::signal());
    perf
}

/// Counters whose events this host has and whose counts are known.
fn countable(list: impl IntoIterator<Item = Counter>) -> impl Iterator<Item = (Counter, u64)> {
    list.into_iter().filter_map(|counter| counter.per_round.map(|events| (counter, events)))
}

fn counts(source: Source, model: Model) {
    const ROUNDS: [u64; 3] = [1, 1000, 5000];
    let mut main = rest(model);
    let list: Vec<_> = countable(counters(model)).collect();
    let mut wanted = Vec::new();
    for (counter, events) in &list {
        main.push(Step::WriteMsr(counter.msr, 0));
        main.extend(&counter.on);
        // Of conditional branches there are none but the loop's.
        let all = *events == 2;
        let mut value = if all { START_TO_READ } else { 0 };
        main.push(Step::ReadMsr(counter.msr));
        wanted.push((main.len() - 1, counter.msr, value));
        for rounds in ROUNDS {
            main.extend([Step::Spin(rounds), Step::ReadMsr(counter.msr)]);
            value += events * rounds + if all { AROUND_LOOP } else { 0 };
            wanted.push((main.len() - 1, counter.msr, value));
        }
        main.extend(&counter.off);
    }
    let program = Program { main, handlers: Vec::new() };
    let (results, _) = source.run(model, program);
    let read: Vec<_> = wanted.iter().map(|(i, msr, _)| (*msr, results[0].main[*i])).collect();
    let wanted: Vec<_> = wanted.iter().map(|(_, msr, value)| (*msr, Given::Value(*value))).collect();
    assert_eq!(read, wanted, "{model}");
}

/// A counter of instructions.
fn retired(model: Model) -> Option<Counter> {
    countable(counters(model)).find(|(_, events)| *events == 2).map(|(counter, _)| counter)
}

/// Instructions of kernel mode that the guest's processor does not execute: CPUID, which KVM does, and OUT, which perfvisor does.
fn emulated(source: Source, model: Model) {
    const ROUNDS: u64 = 100;
    // A port that nothing answers at.
    const NOBODY: u16 = 0x80;
    let counter = retired(model).unwrap();
    let read = Step::ReadMsr(counter.msr);
    let mut main = rest(model);
    main.push(Step::WriteMsr(counter.msr, 0));
    main.extend(&counter.on);
    main.push(read);
    let first = main.len();
    main.push(read);
    for step in [Step::Cpuid(0), Step::Out(NOBODY, 0)] {
        main.extend(vec![step; ROUNDS as usize]);
        main.push(read);
    }
    main.extend(&counter.off);
    let (results, _) = source.run(model, Program { main, handlers: Vec::new() });
    let at = |i: usize| results[0].main[i].value();
    let rounds = ROUNDS as usize;
    let (cpuid, out) = (first + 1 + rounds, first + 2 + 2 * rounds);
    let unseen = if source.sees_emulated() { 0 } else { 1 };
    assert_eq!(at(first) - at(first - 1), READ_STEP, "{model}");
    assert_eq!(at(cpuid) - at(first), ROUNDS * (CPUID_STEP - unseen) + READ_STEP, "{model}: CPUID");
    assert_eq!(at(out) - at(cpuid), ROUNDS * OUT_STEP + READ_STEP, "{model}: OUT");
}

/// Periods are over in a loop: where the handler finds it tells how many instructions late it was called. The last one
/// is a single event, over before the loop begins.
///
/// The guest runs with a real-time priority. Were it switched out one event before the end of a period, perf would begin
/// again with two; [`Source::late_after_one`] is that, when it is no accident.
fn overflows(source: Source, model: Model) {
    let thread = std::thread::spawn(move || {
        vcpus_come_first();
        overflows_undisturbed(source, model);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// The threads that this one makes have its priority. Without the right to it they are as others.
#[allow(unsafe_code)]
fn vcpus_come_first() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: a parameter made here.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) };
}

fn overflows_undisturbed(source: Source, model: Model) {
    const PERIODS: [u64; 7] = [500, 501, 2000, 2001, 4444, 10_000, 1];
    let (counter, _) = countable(interrupting(model)).find(|(_, events)| *events == 2).unwrap();
    let mut main = vec![Step::WriteMsr(APIC_BASE, X2APIC | 1 << 8), Step::WriteMsr(SPURIOUS, 0x1FF)];
    for period in PERIODS {
        main.extend([Step::WriteMsr(LVTPC, NMI), before(&counter, period)]);
        main.extend(&counter.on_int);
        main.push(Step::Spin(period));
        main.extend(&counter.off);
    }
    main.push(Step::Load(nmis(0)));
    let handler = vec![Step::InterruptedRounds, Step::InterruptedAt, Step::ReadMsr(counter.msr)];
    let program = Program { main, handlers: vec![handler] };
    let (results, dumps) = source.run(model, program);
    let handled = PERIODS.len() as u64;
    assert_eq!(
        results[0].main.last(),
        Some(&Given::Value(handled)),
        "{model}: one interrupt for each period"
    );
    assert_eq!(dumps[0].pmu.as_ref().unwrap().pmis, handled, "{model}");
    for (found, period) in results[0].handler.chunks(3).zip(PERIODS) {
        let [rounds, at, count] = [0, 1, 2].map(|i| found[i].value());
        if period == 1 {
            assert_eq!(count, HANDLER_TO_READ + source.late_after_one(), "{model}: after a period of 1");
            continue;
        }
        assert!(at == 0 || at == SECOND, "{model}: interrupted elsewhere than in the loop");
        let executed = START_TO_LOOP + 2 * (period - rounds) - u64::from(at == SECOND);
        // The lab's counters interrupt at the very instruction; a processor takes some more.
        let late = executed as i64 - period as i64;
        assert_eq!((late, count), (0, HANDLER_TO_READ), "{model}: instructions late in a period of {period}");
    }
}
