//! The engine against a model that knows nothing of slots, ids or periods: every thread has one number per counter,
//! which sees every event of the processor while the thread is attached there.

#![allow(clippy::unwrap_used, reason = "outside #[test] functions clippy does not see that this is a test")]

mod guest;

use std::collections::BTreeMap;
use std::sync::Arc;

use guest::*;
use perfctr_abi::layout::CpuState;
use proptest::prelude::*;
use vm_memory::GuestMemoryMmap;
use vpmu::ControlTable;
use vpmu::sim::{Executed, Work};

const VCPUS: usize = 3;
const THREADS: usize = 6;
const EAGAIN: i32 = -11;
const EBUSY: i32 = -16;

/// What the threads may ask for. Unit masks make events that count differently (see the source `sim`).
const CONTROLS: [&[u32]; 8] = [
    &[],
    &[USR | 0xC0],
    &[USR | 0xC0, USR | 0xC2],
    &[USR | 0xC0, OS | 0xC0, USR | OS | 0x76, OS | 0xC3],
    &[USR | 0xC0, USR | 0xC0],
    &[USR | 0x01C0, USR | 0x02C0, USR | 0x03C0, USR | 0x04C0],
    &[OS | 0x01C0, OS | 0x02C0, OS | 0x03C0],
    &[USR | OS | 0xC2, USR | OS | 0xC3, USR | OS | 0x0176, USR | OS | 0x76],
];

/// What `evntsel` counts of `work`: the same rule as the simulated host's, written down a second time.
fn counted(evntsel: u32, work: &Work) -> u64 {
    let of = |executed: &Executed| match evntsel & 0xFF {
        0x76 => executed.cycles,
        0xC0 => executed.instructions,
        0xC2 => executed.branches,
        0xC3 => executed.mispredicted,
        other => unreachable!("{other:#x} is in no control"),
    };
    let mut count = 0;
    if evntsel & 1 << 16 != 0 {
        count += of(&work.user);
    }
    if evntsel & 1 << 17 != 0 {
        count += of(&work.kernel);
    }
    count * (u64::from(evntsel >> 8 & 0xFF) + 1)
}

#[derive(Clone, Debug)]
enum Step {
    /// The thread stops wherever it runs, and is given a control on a vCPU.
    Control {
        thread: usize,
        vcpu: usize,
        control: usize,
    },
    /// The vCPU runs the thread next, which stops elsewhere first.
    Switch {
        thread: usize,
        vcpu: usize,
    },
    /// The same by RESUME, which leaves suspending to the engine.
    Resume {
        thread: usize,
        vcpu: usize,
    },
    Suspend {
        vcpu: usize,
    },
    Sample {
        vcpu: usize,
    },
    Execute {
        vcpu: usize,
        work: Work,
    },
    Snapshot {
        vcpu: usize,
    },
    /// Somebody takes so many of the host's counters.
    Take {
        vcpu: usize,
        count: usize,
    },
}

fn executed() -> impl Strategy<Value = Executed> {
    // Now and then more than 32 bits at once.
    let number = prop_oneof![4 => 0..5000u64, 1 => 0..1u64 << 34];
    (number.clone(), number.clone(), number.clone(), number).prop_map(
        |(cycles, instructions, branches, mispredicted)| Executed {
            cycles,
            instructions,
            branches,
            mispredicted,
        },
    )
}

fn step(failures: bool) -> impl Strategy<Value = Step> {
    let (thread, vcpu) = (0..THREADS, 0..VCPUS);
    prop_oneof![
        3 => (thread.clone(), vcpu.clone(), 0..CONTROLS.len())
            .prop_map(|(thread, vcpu, control)| Step::Control { thread, vcpu, control }),
        6 => (thread.clone(), vcpu.clone()).prop_map(|(thread, vcpu)| Step::Switch { thread, vcpu }),
        2 => (thread, vcpu.clone()).prop_map(|(thread, vcpu)| Step::Resume { thread, vcpu }),
        2 => vcpu.clone().prop_map(|vcpu| Step::Suspend { vcpu }),
        2 => vcpu.clone().prop_map(|vcpu| Step::Sample { vcpu }),
        8 => (vcpu.clone(), executed(), executed(), 0..1u64 << 33)
            .prop_map(|(vcpu, user, kernel, tsc)| Step::Execute { vcpu, work: Work { user, kernel, tsc } }),
        1 => vcpu.clone().prop_map(|vcpu| Step::Snapshot { vcpu }),
        u32::from(failures) => (vcpu, 0..6usize).prop_map(|(vcpu, count)| Step::Take { vcpu, count }),
    ]
}

/// A thread of the guest: what the driver keeps, and what the model expects.
#[derive(Clone, Default)]
struct Thread {
    /// `None`: never given a control, or refused.
    control: Option<usize>,
    id: u64,
    vcpu: Option<usize>,
    expected: Vec<u64>,
    expected_tsc: u64,
    /// What was read from its page last.
    seen: Vec<u64>,
}

struct World<'a> {
    mem: &'a GuestMemoryMmap,
    vcpus: Vec<Driver<'a>>,
    threads: Vec<Thread>,
    /// By vCPU and event select: everything that was ever attributed.
    grand: Vec<BTreeMap<u32, u64>>,
    grand_tsc: Vec<u64>,
    failures: bool,
}

impl<'a> World<'a> {
    fn new(mem: &'a GuestMemoryMmap, table: &Arc<ControlTable>, origin: u64, failures: bool) -> Self {
        let vcpus = (0..VCPUS).map(|n| {
            // The second has room for more than one control, the others barely for one.
            let mut pmu = vcpu(table, 4 + 5 * (n % 2));
            pmu.host_mut().set_origin(origin);
            Driver::new(pmu, mem, n as u64)
        });
        Self {
            mem,
            vcpus: vcpus.collect(),
            threads: vec![Thread::default(); THREADS],
            grand: vec![BTreeMap::new(); VCPUS],
            grand_tsc: vec![0; VCPUS],
            failures,
        }
    }

    fn running(&self, vcpu: usize) -> Option<usize> {
        self.threads.iter().position(|thread| thread.vcpu == Some(vcpu))
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Control { thread, vcpu, control } => {
                self.stop(thread);
                // As perfctr does: the sums begin anew.
                write_state(self.mem, state_page(thread), &CpuState::default());
                self.threads[thread] = Thread {
                    control: Some(control),
                    expected: vec![0; CONTROLS[control].len()],
                    seen: vec![0; CONTROLS[control].len()],
                    ..Thread::default()
                };
                self.send_control(thread, vcpu);
            }
            Step::Switch { thread, vcpu } => self.switch(thread, vcpu, false),
            Step::Resume { thread, vcpu } => self.switch(thread, vcpu, true),
            Step::Suspend { vcpu } => {
                if let Some(thread) = self.running(vcpu) {
                    self.stop(thread);
                }
            }
            Step::Sample { vcpu } => {
                if let Some(thread) = self.running(vcpu) {
                    assert_eq!(self.vcpus[vcpu].sample(state_page(thread)), 0);
                    self.check(thread);
                }
            }
            Step::Execute { vcpu, work } => {
                self.vcpus[vcpu].pmu.host_mut().execute(&work);
                let Some(thread) = self.running(vcpu) else { return };
                let thread = &mut self.threads[thread];
                thread.expected_tsc += work.tsc;
                self.grand_tsc[vcpu] += work.tsc;
                for (i, &evntsel) in CONTROLS[thread.control.unwrap()].iter().enumerate() {
                    let count = counted(evntsel, &work);
                    thread.expected[i] += count;
                    *self.grand[vcpu].entry(evntsel).or_default() += count;
                }
            }
            Step::Snapshot { vcpu } => self.check_totals(vcpu),
            Step::Take { vcpu, count } => self.vcpus[vcpu].pmu.host_mut().take(count),
        }
    }

    fn send_control(&mut self, thread: usize, vcpu: usize) {
        let wanted = control(CONTROLS[self.threads[thread].control.unwrap()]);
        match self.vcpus[vcpu].update_control(state_page(thread), wanted) {
            Ok(id) => self.threads[thread].id = id,
            Err(result) => {
                assert!(self.failures && result == EBUSY, "{result}");
                self.threads[thread].control = None;
            }
        }
    }

    fn stop(&mut self, thread: usize) {
        if let Some(vcpu) = self.threads[thread].vcpu.take() {
            assert_eq!(self.vcpus[vcpu].suspend(state_page(thread)), 0);
            self.check(thread);
        }
    }

    fn switch(&mut self, thread: usize, vcpu: usize, by_resume: bool) {
        if self.threads[thread].control.is_none() {
            return;
        }
        if self.threads[thread].vcpu != Some(vcpu) {
            self.stop(thread);
        }
        let prev = self.running(vcpu);
        let id = self.threads[thread].id;
        let (mut result, mut lost) = if by_resume {
            self.vcpus[vcpu].resume(state_page(thread), id)
        } else {
            let prev = prev.map_or(0, state_page);
            self.vcpus[vcpu].switch(prev, state_page(thread), id)
        };
        if let Some(prev) = prev {
            self.threads[prev].vcpu = None;
            self.check(prev);
        }
        while result == EAGAIN {
            self.send_control(thread, vcpu);
            if self.threads[thread].control.is_none() {
                return;
            }
            let id = self.threads[thread].id;
            (result, lost) = self.vcpus[vcpu].resume(state_page(thread), id);
        }
        assert_eq!(result, 0);
        assert!(self.failures || lost == 0, "{lost:#b}");
        self.threads[thread].vcpu = Some(vcpu);
        self.check(thread);
    }

    /// The thread was just suspended, resumed or sampled: its sums are what it executed.
    fn check(&mut self, n: usize) {
        let state = state(self.mem, state_page(n));
        let thread = &mut self.threads[n];
        assert_eq!(state.tsc_sum, thread.expected_tsc, "thread {n}: TSC");
        for (i, &expected) in thread.expected.iter().enumerate() {
            let sum = state.pmc[i].sum;
            assert!(sum >= thread.seen[i], "thread {n}, counter {i} went backwards");
            thread.seen[i] = sum;
            if self.failures {
                assert!(sum <= expected, "thread {n}, counter {i}: {sum} of {expected}");
            } else {
                assert_eq!(sum, expected, "thread {n}, counter {i}");
            }
        }
        assert!(state.pmc[thread.expected.len()..].iter().all(|pmc| pmc.sum == 0));
    }

    /// The host's totals are the sum of the threads', the running one included.
    fn check_totals(&mut self, vcpu: usize) {
        let shown = self.vcpus[vcpu].pmu.snapshot();
        assert_eq!(shown.tsc, self.grand_tsc[vcpu]);
        assert_eq!(shown.others, 0);
        let page = self.running(vcpu).map(state_page);
        assert_eq!(shown.attached.map(|attached| attached.page), page);
        let totals: BTreeMap<u32, u64> = shown
            .events
            .iter()
            .filter(|row| row.total != 0)
            .map(|row| (row.select.evntsel as u32, row.total))
            .collect();
        let mut expected = self.grand[vcpu].clone();
        expected.retain(|_, total| *total != 0);
        if !self.failures {
            assert_eq!((shown.lost, shown.door.errors), (0, 0));
        }
        // A period that is running shows as lost when it ends.
        if !self.failures || shown.lost == 0 && shown.attached.is_none() {
            assert_eq!(totals, expected);
        }
        for (evntsel, total) in totals {
            assert!(total <= expected[&evntsel], "{evntsel:#x}");
        }
    }

    fn finish(mut self) {
        for vcpu in 0..VCPUS {
            self.vcpus[vcpu].pmu.stop(self.mem);
            if let Some(thread) = self.running(vcpu) {
                self.threads[thread].vcpu = None;
                self.check(thread);
            }
            self.check_totals(vcpu);
        }
    }
}

fn run(steps: &[Step], limit: usize, origin: u64, failures: bool) {
    let mem = memory();
    let mut world = World::new(&mem, &ControlTable::with_limit(limit), origin, failures);
    for step in steps {
        world.step(step);
    }
    world.finish();
}

/// Where host counters begin: at 0, before the 32-bit wrap, before the 48-bit one.
fn origin() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::from(u32::MAX) - 3), Just((1 << 48) - 1)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_thread_counts_what_it_executes(
        steps in prop::collection::vec(step(false), 1..200),
        limit in 1..10usize,
        origin in origin(),
    ) {
        run(&steps, limit, origin, false);
    }

    #[test]
    fn with_counters_taken_by_others_nothing_is_invented(
        steps in prop::collection::vec(step(true), 1..200),
        limit in 1..10usize,
    ) {
        run(&steps, limit, 0, true);
    }
}
