//! A guest with several vCPUs and threads, on the engine and on the model at once.
#![allow(clippy::unwrap_used, reason = "outside #[test] functions clippy does not see that this is a test")]

pub mod overflow;
pub mod pv;
pub mod registers;
pub mod step;

use std::collections::BTreeMap;
use std::sync::Arc;

use vm_memory::GuestMemoryMmap;
use vpmu::sim::{Executed, SimPmu, Work};
use vpmu::{ControlTable, PmuConfig, VirtualPmu};

use crate::guest::{CONFIG, Driver, state, state_page};
use crate::hardware::processor::Processor;
use crate::hardware::register_layout::{Layout, Selects};
use crate::hardware::select::{Key, cccr_key, fixed_key};
use crate::hardware::thread::Thread;
use step::{Exit, Step};

pub const VCPUS: usize = 2;
pub const THREADS: usize = 5;

/// What a harness is made with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub layout: &'static Layout,
    /// Controls the VM's table holds.
    pub table: usize,
    /// Where host counters begin.
    pub origin: u64,
    /// Host counters of each vCPU.
    pub capacity: [usize; VCPUS],
    /// Whether guests write their counters' registers.
    pub registers: bool,
    /// Whether all that is asked for must be counted. Otherwise host counters may be missing or taken away, and
    /// what is known is that nothing is invented.
    pub exact: bool,
}

/// How often what is hard to come by has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub steps: u64,
    pub interrupts: u64,
    /// Overflows, of registers and of threads, those without an interrupt included.
    pub overflows: u64,
    /// Operations after which the driver had to send a control again.
    pub retries: u64,
    /// Counters that could not be counted.
    pub lost: u64,
    /// Threads that stopped at an overflow, and that were to stop and went on.
    pub stops: u64,
    pub stale: u64,
}

pub struct Vcpu<'a> {
    pub driver: Driver<'a>,
    pub processor: Processor,
    /// A threshold has been passed and the VMM has not come to it yet.
    owed: bool,
    /// Everything that was attributed to threads, by event and levels.
    totals: BTreeMap<Key, u64>,
    tsc: u64,
    /// Interrupts given.
    given: u64,
    /// The vector that the guest has named, or 0.
    vector: u8,
    /// Something attached here could interrupt.
    interrupts_ever: bool,
    /// The host's totals when they were looked at last.
    seen: BTreeMap<Key, u64>,
}

pub struct Harness<'a> {
    setup: Setup,
    layout: &'static Layout,
    exact: bool,
    mem: &'a GuestMemoryMmap,
    pub vcpus: Vec<Vcpu<'a>>,
    pub threads: Vec<Thread>,
    /// What each id was given for.
    ids: BTreeMap<u64, usize>,
    /// Of the state pages.
    sequences: [u32; THREADS],
    stops: u64,
    stale: u64,
}

impl<'a> Harness<'a> {
    pub fn new(setup: Setup, mem: &'a GuestMemoryMmap) -> Self {
        let table = ControlTable::with_limit(setup.table);
        let model = setup.layout.name.parse().unwrap();
        let vcpus = (0..VCPUS).map(|n| {
            let mut host = SimPmu::new(setup.capacity[n]);
            host.set_origin(setup.origin);
            let config = PmuConfig { model, host: setup.layout.host.processor(), ..CONFIG };
            let pmu = VirtualPmu::new(config, n as u32, Arc::clone(&table), host);
            Vcpu {
                driver: Driver::new(pmu, mem, n as u64),
                processor: Processor::new(setup.layout),
                owed: false,
                totals: BTreeMap::new(),
                tsc: 0,
                given: 0,
                vector: 0,
                interrupts_ever: false,
                seen: BTreeMap::new(),
            }
        });
        let mut harness = Self {
            setup,
            layout: setup.layout,
            exact: setup.exact,
            mem,
            vcpus: vcpus.collect(),
            threads: vec![Thread::default(); THREADS],
            ids: BTreeMap::new(),
            sequences: [0; THREADS],
            stops: 0,
            stale: 0,
        };
        (0..VCPUS).for_each(|vcpu| harness.set_up(vcpu));
        harness.name_tsc();
        harness
    }

    /// The thread that runs on a vCPU.
    pub fn running(&self, vcpu: usize) -> Option<usize> {
        self.threads.iter().position(|thread| thread.vcpu == Some(vcpu))
    }

    pub fn step(&mut self, step: &Step) {
        if step.is_of_registers() && !self.setup.registers {
            return;
        }
        match *step {
            Step::Control { thread, vcpu, control } => self.control(thread, vcpu, control),
            Step::Restart { thread, vcpu, control, stop } => self.restart(thread, vcpu, control, stop),
            Step::Switch { thread, vcpu, stop } => self.switch(thread, vcpu, stop, false),
            Step::Resume { thread, vcpu, stop } => self.switch(thread, vcpu, stop, true),
            Step::Suspend { vcpu } => self.suspend(vcpu),
            Step::Sample { vcpu } => self.sample(vcpu),
            Step::Vector { vcpu, value } => self.name_vector(vcpu, value),
            Step::Change { thread } => self.begin_or_end_change(thread),
            Step::Start { thread, counter, start } => self.scribble(thread, counter, start),
            Step::Execute { vcpu, unit, units, exit } => self.execute(vcpu, &unit, units, exit),
            Step::Select { vcpu, counter, event, bits } => self.write_select(vcpu, counter, event, bits),
            Step::Toggle { vcpu, counter, bit } => self.toggle(vcpu, counter, bit),
            Step::Value { vcpu, counter, row, value } => self.write_value(vcpu, counter, row, value),
            Step::Fixed { vcpu, counter, bits } => self.write_fixed_control(vcpu, counter, bits),
            Step::FixedValue { vcpu, counter, value } => self.write_fixed(vcpu, counter, value),
            Step::Global { vcpu, register, value } => self.write_global(vcpu, register, value),
            Step::Any { vcpu, msr, value } => self.write_any(vcpu, msr, value),
            Step::Read { vcpu, msr } => self.read_any(vcpu, msr),
            Step::Rdpmc { vcpu, number, fixed } => self.rdpmc(vcpu, number, fixed),
            Step::Look { vcpu } => self.check_vcpu(vcpu),
            Step::InputOrOutput { vcpu } => self.input_or_output(vcpu),
            Step::Kick { vcpu } => {
                self.vcpus[vcpu].owed = true;
                self.finish_exit(vcpu);
            }
            Step::Reset { vcpu } => self.reset(vcpu),
            Step::Take { vcpu, count } => {
                if !self.exact {
                    self.vcpus[vcpu].driver.pmu.host_mut().take(count);
                }
            }
        }
    }

    /// The vCPU's guest executes `units` times `unit`.
    fn execute(&mut self, vcpu: usize, unit: &Work, units: u64, exit: Exit) {
        // No entry into the guest before the kick has been seen to.
        self.finish_exit(vcpu);
        let mut left = units;
        let mut kicks = 0;
        while left > 0 {
            let until = self.vcpus[vcpu].driver.pmu.host().units_until_threshold(unit).unwrap_or(u64::MAX);
            let stop = match exit {
                Exit::Exact | Exit::Late => until,
                Exit::Skid(events) => until.saturating_add(events),
            };
            let now = left.min(stop);
            self.run(vcpu, &times(unit, now));
            left -= now;
            let passed = self.vcpus[vcpu].driver.pmu.host_mut().passed_threshold();
            self.vcpus[vcpu].owed |= passed;
            kicks += u32::from(passed);
            assert!(kicks < 1000, "kicks without end");
            if !passed {
                assert_eq!((self.due(vcpu), self.exact && stop < left), (0, false), "a kick is missing");
            } else if exit == Exit::Late {
                // An access of the guest's comes first; the VMM gets to the kick after it.
                return;
            }
            self.finish_exit(vcpu);
        }
    }

    fn run(&mut self, vcpu: usize, work: &Work) {
        let running = self.running(vcpu);
        let on = &mut self.vcpus[vcpu];
        on.driver.pmu.host_mut().execute(work);
        on.processor.execute(work);
        let Some(thread) = running else { return };
        on.tsc += if self.threads[thread].samples_tsc() { work.tsc } else { 0 };
        for (key, count) in self.threads[thread].execute(work) {
            *on.totals.entry(key).or_default() += count;
        }
        on.interrupts_ever |= self.threads[thread].interrupting().next().is_some();
    }

    /// The VMM executes an instruction of the guest's kernel. The host's counters do not see it.
    fn emulated(&mut self, vcpu: usize) {
        let running = self.running(vcpu);
        let on = &mut self.vcpus[vcpu];
        on.processor.emulated();
        let Some(thread) = running else { return };
        for (key, count) in self.threads[thread].emulated() {
            *on.totals.entry(key).or_default() += count;
        }
        on.interrupts_ever |= self.threads[thread].interrupting().next().is_some();
    }

    /// Port or memory-mapped input or output.
    fn input_or_output(&mut self, vcpu: usize) {
        self.emulated(vcpu);
        self.vcpus[vcpu].driver.pmu.emulated(true);
        self.finish_exit(vcpu);
    }

    fn reset(&mut self, vcpu: usize) {
        let page = self.vcpus[vcpu].driver.page;
        if let Some(thread) = self.running(vcpu) {
            // Its sums stay what they were; the next boot begins anew.
            self.threads[thread] = Thread::default();
        }
        let on = &mut self.vcpus[vcpu];
        on.driver.pmu.reset();
        on.processor.reset();
        // A kick is still on its way to the VMM.
        on.vector = 0;
        assert!(!on.driver.pmu.take_pmi());
        assert_eq!(on.driver.pmu.take_vector(self.mem), None);
        let set = perfctr_abi::pv::MSR_BASE + perfctr_abi::pv::MSR_PAGE;
        assert_eq!(on.driver.pmu.wrmsr(set, page | 1, self.mem), vpmu::MsrOutcome::Handled);
        self.set_up(vcpu);
        self.check_vcpu(vcpu);
    }

    /// The thread was just suspended, resumed or sampled: its sums are what it executed.
    fn check_thread(&mut self, n: usize) {
        self.check_sums(n);
        self.check_sequence(n);
        let state = state(self.mem, state_page(n));
        for (i, counter) in self.threads[n].counters.iter_mut().enumerate() {
            let Some(interrupting) = &mut counter.interrupting else { continue };
            let start = state.pmc[i].start as i32;
            if self.exact {
                assert_eq!(start, interrupting.start, "thread {n}, counter {i}: start");
            }
            // A counter that lags overflows later.
            interrupting.start = start;
        }
    }

    fn check_sums(&mut self, n: usize) {
        let state = state(self.mem, state_page(n));
        let exact = self.exact;
        let thread = &mut self.threads[n];
        assert_eq!(state.tsc_sum, thread.tsc, "thread {n}: TSC");
        for (i, counter) in thread.counters.iter_mut().enumerate() {
            let sum = state.pmc[i].sum;
            assert!(sum >= counter.seen, "thread {n}, counter {i} went backwards");
            counter.seen = sum;
            if exact {
                assert_eq!(sum, counter.sum, "thread {n}, counter {i}");
            } else {
                assert!(sum <= counter.sum, "thread {n}, counter {i}: {sum} of {}", counter.sum);
            }
        }
        assert!(state.pmc[thread.counters.len()..].iter().all(|pmc| pmc.sum == 0));
    }

    /// Every register, and the host's view of everything.
    fn check_vcpu(&mut self, vcpu: usize) {
        self.check_registers(vcpu);
        let page = self.running(vcpu).map(state_page);
        let on = &mut self.vcpus[vcpu];
        let shown = on.driver.pmu.snapshot();
        assert_eq!((shown.tsc, shown.others, shown.pmis), (on.tsc, 0, on.given));
        assert_eq!(shown.attached.map(|attached| attached.page), page);
        let mut totals = BTreeMap::<Key, u64>::new();
        for row in &shown.events {
            let select = row.select;
            let key = match select.fixed {
                Some(number) => fixed_key(number.into(), select.evntsel & 3),
                None if self.layout.layout == Selects::Cccr => {
                    cccr_key(select.counter.unwrap().into(), select.evntsel, u64::from(select.escr) & 0xC)
                }
                None => self.layout.key(0, select.evntsel),
            };
            *totals.entry(key).or_default() += row.total;
        }
        totals.retain(|_, total| *total != 0);
        let mut expected = on.totals.clone();
        on.processor.totals.iter().for_each(|(key, count)| *expected.entry(*key).or_default() += count);
        expected.retain(|_, total| *total != 0);
        if self.exact {
            assert_eq!((shown.lost, shown.pv.errors), (0, 0));
            assert_eq!(totals, expected);
            let on_now: Vec<_> =
                on.processor.counting().map(|(rdpmc, value)| (rdpmc, value.bits())).collect();
            let enabled: Vec<_> =
                shown.enabled.iter().map(|counter| (counter.rdpmc, counter.value)).collect();
            assert_eq!(enabled, on_now);
        }
        for (key, total) in &totals {
            assert!(total <= expected.get(key).unwrap_or(&0), "{key:#x}");
        }
        // An interval that turns out to be lost takes back what a running one has shown.
        if self.exact {
            assert!(on.seen.iter().all(|(key, seen)| totals[key] >= *seen), "totals went backwards");
        }
        on.seen = totals;
    }

    /// The VM ends.
    pub fn finish(mut self, tally: &mut Tally) {
        for vcpu in 0..VCPUS {
            self.finish_exit(vcpu);
            self.check_vcpu(vcpu);
            self.vcpus[vcpu].driver.pmu.stop(self.mem);
            if let Some(thread) = self.running(vcpu) {
                self.threads[thread].end();
                self.detached(thread, pv::Next::Other);
            }
            self.vcpus[vcpu].processor.stop();
            // Everything has been looked at.
            self.vcpus[vcpu].driver.pmu.take_pmi();
            let shown = self.vcpus[vcpu].driver.pmu.snapshot();
            self.vcpus[vcpu].given = shown.pmis;
            self.check_vcpu(vcpu);
            tally.interrupts += shown.pmis;
            tally.overflows += shown.overflows + shown.registers.overflows;
            tally.retries += shown.pv.retries;
            tally.lost += shown.lost + shown.registers.lost;
        }
        tally.stops += self.stops;
        tally.stale += self.stale;
    }
}

/// `work`, so many times.
fn times(work: &Work, n: u64) -> Work {
    let executed = |of: &Executed| Executed {
        cycles: of.cycles * n,
        instructions: of.instructions * n,
        branches: of.branches * n,
        mispredicted: of.mispredicted * n,
    };
    Work { user: executed(&work.user), kernel: executed(&work.kernel), tsc: work.tsc * n }
}
