//! What a state's owner may see is a function of that state's own history. Two guests do the same, one step after
//! another, and differ only in what threads other than the first execute: the first thread's page, the outcomes of the
//! operations on it, and its interrupts are the same, to the byte.
#![allow(clippy::unwrap_used, reason = "outside #[test] functions clippy does not see that this is a test")]

mod guest;

use std::sync::Arc;

use guest::*;
use perfctr_abi::layout::{CpuControl, CpuState};
use perfctr_abi::pv::{MSR_BASE, MSR_VECTOR, Page, op};
use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vpmu::sim::{Executed, SimPmu, Work};
use vpmu::{ControlTable, MsrOutcome, VirtualPmu};

const THREADS: usize = 3;
const VCPUS: usize = 2;
const INT: u32 = 1 << 20;

/// Of the first thread, and of the others: nearly the same events, so that host counters are shared.
fn control_of(number: usize) -> CpuControl {
    let interrupting = |evntsels: &[u32], ireset| {
        let mut control = control(evntsels);
        (control.nractrs, control.nrictrs) = (control.nractrs - 1, 1);
        control.ireset[evntsels.len() - 1] = ireset;
        control
    };
    match number {
        0 => control(&[USR | 0xC0]),
        1 => control(&[USR | 0xC0, OS | 0xC2]),
        2 => interrupting(&[USR | 0xC0, USR | INT | 0xC0], -1000),
        3 => interrupting(&[USR | 0xC2, USR | INT | 0xC0], -1),
        4 => interrupting(&[USR | INT | 0xC2], -77),
        _ => CpuControl { tsc_on: 0, ..control(&[USR | 0xC0, USR | 0xC3]) },
    }
}

const CONTROLS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    Restart {
        thread: usize,
        vcpu: usize,
        control: usize,
        stops: bool,
    },
    Switch {
        thread: usize,
        vcpu: usize,
        stops: bool,
    },
    Suspend {
        vcpu: usize,
    },
    Sample {
        vcpu: usize,
    },
    /// What is executed if the first thread runs, and what if another does, in the one guest and in the other.
    Execute {
        vcpu: usize,
        first: u64,
        others: [u64; 2],
    },
    /// The vCPU leaves its guest for no reason of the guest's.
    Kick {
        vcpu: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (thread, vcpu) = (0..THREADS, 0..VCPUS);
    // Far and near, and beyond the 32 bits that a page shows.
    let count =
        || prop_oneof![4 => 0..3000u64, 1 => Just(2_000_000), 1 => Just(10_000_000), 1 => 0..1u64 << 33];
    prop_oneof![
        2 => (thread.clone(), vcpu.clone(), 0..CONTROLS, any::<bool>())
            .prop_map(|(thread, vcpu, control, stops)| Step::Restart { thread, vcpu, control, stops }),
        6 => (thread, vcpu.clone(), any::<bool>())
            .prop_map(|(thread, vcpu, stops)| Step::Switch { thread, vcpu, stops }),
        1 => vcpu.clone().prop_map(|vcpu| Step::Suspend { vcpu }),
        2 => vcpu.clone().prop_map(|vcpu| Step::Sample { vcpu }),
        8 => (vcpu.clone(), count(), [count(), count()])
            .prop_map(|(vcpu, first, others)| Step::Execute { vcpu, first, others }),
        1 => vcpu.prop_map(|vcpu| Step::Kick { vcpu }),
    ]
}

/// One of the two guests.
struct Guest<'a> {
    /// Which of the numbers for the other threads are its own.
    side: usize,
    mem: &'a GuestMemoryMmap,
    drivers: Vec<Driver<'a>>,
    ids: [Option<u64>; THREADS],
    running: [Option<usize>; VCPUS],
    stop_id: u64,
    /// What the first thread's owner could see, in order.
    seen: Vec<Seen>,
}

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// `result`, `lost`, `lost_prev`, `overflow_prev`.
    Reported(i32, u32, u32, u32),
    /// The vector, and the words `attention` and `stopped`.
    Interrupt(u8, u32, u32),
    Page(Box<CpuState>),
}

impl<'a> Guest<'a> {
    fn new(side: usize, mem: &'a GuestMemoryMmap, vector: u64) -> Self {
        let table = ControlTable::new();
        let drivers = (0..VCPUS).map(|n| {
            let pmu = VirtualPmu::new(CONFIG, n as u32, Arc::clone(&table), SimPmu::new(6));
            let mut driver = Driver::new(pmu, mem, n as u64);
            assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_VECTOR, vector, mem), MsrOutcome::Handled);
            driver
        });
        let mut guest = Self {
            side,
            mem,
            drivers: drivers.collect(),
            ids: [None; THREADS],
            running: [None; VCPUS],
            stop_id: 0,
            seen: Vec::new(),
        };
        guest.stop_id = guest.drivers[0].update_control(0, control(&[])).unwrap();
        guest
    }

    fn doorbell(&mut self, vcpu: usize, number: u64, filled: Page) -> Page {
        let page = self.drivers[vcpu].doorbell(number, filled);
        let concerns = |address| address == state_page(0);
        if concerns(filled.prev) {
            self.seen.push(Seen::Reported(0, 0, page.lost_prev, page.overflow_prev));
        }
        if concerns(filled.next) {
            self.seen.push(Seen::Reported(page.result, page.lost, 0, 0));
        }
        page
    }

    fn suspend(&mut self, vcpu: usize) {
        if let Some(thread) = self.running[vcpu].take() {
            let filled = Page { prev: state_page(thread), ..Page::default() };
            assert_eq!(self.doorbell(vcpu, op::SUSPEND, filled).result, 0);
        }
    }

    /// The thread runs on this vCPU and nowhere else.
    fn leave_others(&mut self, thread: usize, vcpu: usize) -> u64 {
        if let Some(other) = (0..VCPUS).find(|&n| n != vcpu && self.running[n] == Some(thread)) {
            self.suspend(other);
        }
        self.running[vcpu].map_or(0, state_page)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Restart { thread, vcpu, control, stops } => {
                let prev = self.leave_others(thread, vcpu);
                let stop_id = if stops { self.stop_id } else { 0 };
                let (next, control) = (state_page(thread), control_of(control));
                let page = self.doorbell(
                    vcpu,
                    op::CONTROL,
                    Page { prev, next, control, stop_id, ..Page::default() },
                );
                assert_eq!(page.result, 0);
                (self.ids[thread], self.running[vcpu]) = (Some(page.id), Some(thread));
            }
            Step::Switch { thread, vcpu, stops } => {
                let Some(next_id) = self.ids[thread] else { return };
                let prev = self.leave_others(thread, vcpu);
                let stop_id = if stops { self.stop_id } else { 0 };
                let next = state_page(thread);
                let page =
                    self.doorbell(vcpu, op::SWITCH, Page { prev, next, next_id, stop_id, ..Page::default() });
                assert_eq!(page.result, 0);
                self.running[vcpu] = Some(thread);
            }
            Step::Suspend { vcpu } => self.suspend(vcpu),
            Step::Sample { vcpu } => {
                if let Some(thread) = self.running[vcpu] {
                    let filled = Page { prev: state_page(thread), ..Page::default() };
                    assert_eq!(self.doorbell(vcpu, op::SAMPLE, filled).result, 0);
                }
            }
            Step::Execute { vcpu, first, others } => match self.running[vcpu] {
                Some(0) => self.execute(vcpu, first),
                _ => self.execute(vcpu, others[self.side]),
            },
            Step::Kick { vcpu } => self.leave(vcpu),
        }
        self.seen.push(Seen::Page(Box::new(state(self.mem, state_page(0)))));
    }

    /// The guest leaves for each kick, at the event. Time passes alike in both guests.
    fn execute(&mut self, vcpu: usize, count: u64) {
        let one = Executed { cycles: 2, instructions: 1, branches: 1, mispredicted: 1 };
        let unit = Work { user: one, kernel: one, tsc: 0 };
        self.drivers[vcpu].pmu.host_mut().execute(&Work { tsc: 1000, ..Work::default() });
        let mut left = count;
        while left > 0 {
            let until = self.drivers[vcpu].pmu.host().units_until_threshold(&unit).unwrap_or(u64::MAX);
            let now = left.min(until);
            let times = Executed { cycles: 2 * now, instructions: now, branches: now, mispredicted: now };
            self.drivers[vcpu].pmu.host_mut().execute(&Work { user: times, kernel: times, tsc: 0 });
            left -= now;
            if self.drivers[vcpu].pmu.host_mut().passed_threshold() {
                self.leave(vcpu);
            }
        }
    }

    fn leave(&mut self, vcpu: usize) {
        let driver = &mut self.drivers[vcpu];
        driver.pmu.kicked();
        let pmi = u8::from(driver.pmu.take_pmi());
        let given = driver.pmu.take_vector(self.mem).unwrap_or(pmi);
        let [attention, stopped] =
            [48, 52].map(|at| self.mem.read_obj(GuestAddress(driver.page + at)).unwrap());
        if self.running[vcpu] == Some(0) && given != 0 {
            self.seen.push(Seen::Interrupt(given, attention, stopped));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_sees_what_others_execute(
        steps in prop::collection::vec(step(), 1..60), vector in prop_oneof![Just(0), Just(0xF6)]
    ) {
        let memories = [memory(), memory()];
        let mut guests = [0, 1].map(|side| Guest::new(side, &memories[side], vector));
        for (number, step) in steps.iter().enumerate() {
            guests.iter_mut().for_each(|guest| guest.step(step));
            let [one, other] = guests.each_mut().map(|guest| std::mem::take(&mut guest.seen));
            prop_assert_eq!(one, other, "after step {}: {:?}", number, step);
        }
    }
}

/// As it was once measured: a sleeper reads its page before and after another executes.
#[test]
fn a_sleeper_cannot_tell_two_million_instructions_from_ten() {
    let shown = [2_000_000, 10_000_000].map(|count| {
        let mem = memory();
        let mut driver = Driver::new(vcpu(&ControlTable::new(), 6), &mem, 0);
        let id = driver.update_control(state_page(0), control_of(2)).unwrap();
        driver.resume(state_page(0), id);
        let user =
            |instructions| Work { user: Executed { instructions, ..Executed::default() }, ..Work::default() };
        driver.pmu.host_mut().execute(&user(100));
        driver.suspend(state_page(0));
        let before = state(&mem, state_page(0));
        driver.pmu.host_mut().execute(&user(count));
        driver.resume(state_page(0), id);
        driver.pmu.host_mut().execute(&user(100));
        driver.sample(state_page(0));
        let after = state(&mem, state_page(0));
        let others = |i: usize| {
            let (before, after) = (before.pmc[i], after.pmc[i]);
            after.start.wrapping_sub(before.start).wrapping_sub((after.sum - before.sum) as u32)
        };
        assert_eq!((after.pmc[0].sum, after.pmc[1].sum), (200, 200));
        (others(0), others(1), after)
    });
    assert_eq!(shown[0], shown[1]);
}
