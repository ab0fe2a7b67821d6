//! Overflow interrupts by a vector of the guest's, and states that stop at their overflows.
#![allow(clippy::unwrap_used, reason = "outside #[test] functions clippy does not see that this is a test")]

mod guest;

use guest::*;
use perfctr_abi::layout::{CpuControl, CpuState, SEQ_OFFSET};
use perfctr_abi::pv::{MSR_BASE, MSR_PAGE, MSR_VECTOR, Page, op};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vpmu::sim::{Executed, Work};
use vpmu::{ControlTable, MsrOutcome};

const ESRCH: i32 = -3;
const EFAULT: i32 = -14;

/// A thousand user instructions, 100 of them branches, in 2000 cycles.
const WORK: Work = Work {
    user: Executed { cycles: 2000, instructions: 1000, branches: 100, mispredicted: 5 },
    kernel: Executed { cycles: 0, instructions: 0, branches: 0, mispredicted: 0 },
    tsc: 3000,
};
const VECTOR: u64 = 0xF6;

/// An i-mode counter of user instructions.
fn interrupting(ireset: i32) -> CpuControl {
    let mut control = control(&[USR | 0x0010_00C0]);
    (control.nractrs, control.nrictrs, control.ireset[0]) = (0, 1, ireset);
    control
}

/// A vCPU with as many host counters, whose guest has named a vector.
fn driver(mem: &GuestMemoryMmap, capacity: usize) -> Driver<'_> {
    let mut driver = Driver::new(vcpu(&ControlTable::new(), capacity), mem, 0);
    assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_VECTOR, VECTOR, mem), MsrOutcome::Handled);
    driver
}

/// The words `attention` and `stopped`.
fn reported(mem: &GuestMemoryMmap) -> [u32; 2] {
    [48, 52].map(|at| mem.read_obj(GuestAddress(page(0) + at)).unwrap())
}

/// The guest executes, and leaves for the VMM.
fn run(driver: &mut Driver<'_>) -> Option<u8> {
    driver.pmu.host_mut().execute(&WORK);
    driver.pmu.kicked();
    assert!(!driver.pmu.take_pmi());
    driver.pmu.take_vector(driver.mem)
}

/// State 0 runs, and has stopped at an overflow that no operation has reported to its guest yet.
fn stopped(driver: &mut Driver<'_>) {
    let next = state_page(0);
    let next_id = driver.update_control(next, interrupting(-600)).unwrap();
    let stop_id = driver.update_control(0, control(&[])).unwrap();
    assert_eq!(driver.doorbell(op::RESUME, Page { next, next_id, stop_id, ..Page::default() }).result, 0);
    assert_eq!(run(driver), Some(VECTOR as u8));
    assert_eq!(reported(driver.mem), [1, 1]);
}

#[test]
fn an_overflow_interrupts_by_the_vector_that_the_guest_names() {
    let mem = memory();
    let mut driver = Driver::new(vcpu(&ControlTable::new(), 6), &mem, 0);
    let register = MSR_BASE + MSR_VECTOR;
    assert_eq!(driver.pmu.rdmsr(register), MsrOutcome::Value(0));
    for bad in [1, 15, 256, 1 << 32 | 0xF6, u64::MAX] {
        assert_eq!(driver.pmu.wrmsr(register, bad, &mem), MsrOutcome::GpFault, "{bad:#x}");
    }
    let attention = || reported(&mem)[0];
    for vector in [16, 0xF6, 255, 0] {
        assert_eq!(driver.pmu.wrmsr(register, vector, &mem), MsrOutcome::Handled);
        assert_eq!(driver.pmu.rdmsr(register), MsrOutcome::Value(vector));
        assert_eq!(driver.control(0, state_page(0), interrupting(-600)).result, 0);
        assert_eq!(driver.pmu.take_vector(&mem), None);
        driver.pmu.host_mut().execute(&WORK);
        driver.pmu.kicked();
        let by_vector = vector != 0;
        assert_eq!((driver.pmu.take_pmi(), attention()), (!by_vector, 0));
        assert_eq!(driver.pmu.take_vector(&mem), by_vector.then_some(vector as u8));
        assert_eq!(attention(), 1, "by LVTPC, too: an NMI says nothing of where it comes from");
        assert_eq!((driver.pmu.take_vector(&mem), driver.pmu.take_pmi()), (None, false), "once");
        assert_eq!(driver.suspend(state_page(0)), 0);
        assert_eq!(attention(), 0);
    }
    assert_eq!(driver.pmu.snapshot().pmis, 4);
    assert_eq!(driver.pmu.wrmsr(register, 0xF6, &mem), MsrOutcome::Handled);
    driver.pmu.reset();
    assert_eq!(driver.pmu.rdmsr(register), MsrOutcome::Value(0));
}

#[test]
fn a_state_stops_at_an_overflow_if_its_guest_names_a_stop_control() {
    let mem = memory();
    let mut driver = driver(&mem, 6);
    let sequence = GuestAddress(state_page(0) + SEQ_OFFSET as u64);
    let mut interrupting = control(&[USR | 0xC2, USR | 0x0010_00C0]);
    (interrupting.nractrs, interrupting.nrictrs, interrupting.ireset[1]) = (1, 1, -600);
    let next = state_page(0);
    let next_id = driver.update_control(next, interrupting).unwrap();
    let stop_id = driver.update_control(0, control(&[])).unwrap();
    let reported = || mem.read_obj::<u64>(GuestAddress(page(0) + 48)).unwrap();
    // The guest is in no change of the page, or in one; an id that nobody knows stops nothing.
    for (sequence_before, sequence_after, stop_id) in [(6_u32, 8, stop_id), (7, 7, stop_id), (8, 8, 99)] {
        let stops = stop_id != 99;
        write_state(&mem, next, &CpuState::default());
        mem.write_obj((-600_i32) as u32, GuestAddress(next + 24 + 16 + 4)).unwrap();
        mem.write_obj(sequence_before, sequence).unwrap();
        let begun = driver.doorbell(op::RESUME, Page { next, next_id, stop_id, ..Page::default() });
        assert_eq!((begun.result, begun.lost), (0, 0));
        driver.pmu.host_mut().execute(&WORK);
        driver.pmu.kicked();
        assert_eq!(driver.pmu.take_vector(&mem), Some(0xF6));
        assert_eq!(reported(), u64::from(stops) << 33 | 1, "attention, and which");
        assert_eq!(mem.read_obj::<u32>(sequence).unwrap(), sequence_after);
        let counts = || state(&mem, next).pmc[..2].iter().map(|pmc| pmc.sum).collect::<Vec<_>>();
        if stops {
            assert_eq!(counts(), [100, 1000]);
        }
        driver.pmu.host_mut().execute(&WORK);
        driver.pmu.kicked();
        assert_eq!(driver.pmu.take_vector(&mem), None);
        let ended = driver.doorbell(op::SUSPEND, Page { prev: next, ..Page::default() });
        assert_eq!((ended.result, ended.overflow_prev, reported()), (0, 2, 0));
        assert_eq!(counts(), if stops { [100, 1000] } else { [200, 2000] });
        assert_eq!(state(&mem, next).tsc_sum, 6000);
    }
    assert_eq!((driver.pmu.snapshot().overflows, driver.pmu.snapshot().lost), (3, 0));
}

#[test]
fn what_a_state_goes_on_with_may_need_the_counter_that_overflowed() {
    let mem = memory();
    let mut driver = driver(&mem, 1);
    let next = state_page(0);
    // The last that is asked for is the last that is loaded.
    let stop_id = driver.update_control(0, control(&[USR | 0xC2])).unwrap();
    let next_id = driver.update_control(next, interrupting(-600)).unwrap();
    assert_eq!(driver.doorbell(op::RESUME, Page { next, next_id, stop_id, ..Page::default() }).result, 0);
    assert_eq!(run(&mut driver), Some(VECTOR as u8));
    assert_eq!((reported(&mem), state(&mem, next).pmc[0].sum), ([1, 1], 1000));
    driver.pmu.host_mut().execute(&WORK);
    let ended = driver.doorbell(op::SUSPEND, Page { prev: next, ..Page::default() });
    assert_eq!((ended.result, ended.lost_prev, ended.overflow_prev), (0, 0, 1));
    assert_eq!(state(&mem, next).pmc[0].sum, 1100, "branches since then");
    assert_eq!((driver.pmu.snapshot().lost, driver.pmu.snapshot().overflows), (0, 1));
}

#[test]
fn an_overflow_is_reported_with_the_state_it_is_of() {
    let mem = memory();
    // Nothing, another state, and what is no state at all.
    for (prev, result) in [(0, 0), (state_page(1), ESRCH), (8, EFAULT), (page(PAGES), EFAULT)] {
        for number in [op::SUSPEND, op::SAMPLE] {
            let mut driver = driver(&mem, 6);
            write_state(&mem, state_page(0), &CpuState::default());
            stopped(&mut driver);
            let asked = driver.doorbell(number, Page { prev, attention: 1, stopped: 1, ..Page::default() });
            assert_eq!((asked.result, asked.lost_prev, asked.overflow_prev), (result, 0, 0), "{prev:#x}");
            assert_eq!((asked.attention, asked.stopped), (1, 1), "still pending");
            let asked =
                driver.doorbell(number, Page { prev: state_page(0), attention: 1, stopped: 1, ..asked });
            assert_eq!((asked.result, asked.overflow_prev), (0, 1));
            assert_eq!((asked.attention, asked.stopped), (0, 0));
            assert_eq!(state(&mem, state_page(0)).pmc[0].sum, 1000);
        }
    }
}

#[test]
fn an_overflow_of_a_state_that_is_forgotten_is_reported_of_no_other() {
    let mem = memory();
    for number in [op::RESUME, op::SWITCH, op::CONTROL] {
        let mut driver = driver(&mem, 6);
        stopped(&mut driver);
        let next = state_page(1);
        let next_id = driver.update_control(next, control(&[USR | 0xC2])).unwrap();
        let prev = state_page(2);
        let filled = Page { prev, next, next_id, attention: 1, stopped: 1, ..Page::default() };
        let asked = driver.doorbell(number, Page { control: control(&[USR | 0xC2]), ..filled });
        assert_eq!(asked.result, if number == op::RESUME { 0 } else { ESRCH });
        assert_eq!((asked.overflow_prev, asked.attention, asked.stopped), (0, 0, 0), "operation {number}");
        let ended = driver.doorbell(op::SUSPEND, Page { prev: next, ..Page::default() });
        assert_eq!((ended.result, ended.overflow_prev), (0, 0), "operation {number}");
    }
}

#[test]
fn nothing_is_reported_after_the_page_is_withdrawn() {
    let mem = memory();
    let mut driver = driver(&mem, 6);
    stopped(&mut driver);
    for value in [0, page(0) | 1] {
        assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_PAGE, value, &mem), MsrOutcome::Handled);
    }
    assert_eq!(reported(&mem), [0, 0]);
    let id = driver.update_control(0, interrupting(-600)).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    let ended = driver.doorbell(op::SUSPEND, Page { prev: state_page(0), ..Page::default() });
    assert_eq!((ended.result, ended.overflow_prev), (0, 0));
}
