//! The hot path allocates nothing.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]
#![allow(clippy::unwrap_used, reason = "outside #[test] functions clippy does not see that this is a test")]

mod guest;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use guest::*;
use perfctr_abi::layout::CpuControl;
use perfctr_abi::pv::{MSR_BASE, MSR_DOORBELL, MSR_RDPMC, MSR_VECTOR, Page, op};
use vm_memory::{Bytes, GuestAddress};
use vpmu::sim::{Executed, Work};
use vpmu::{ControlTable, MsrOutcome};
use zerocopy::IntoBytes;

thread_local! {
    /// Allocations of this thread. Const and without a destructor, so that counting does not allocate.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and releases while `hot` runs.
fn allocations(hot: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    assert!(before > 0, "allocations are counted");
    hot();
    ALLOCATIONS.get() - before
}

const WORK: Work = Work {
    user: Executed { cycles: 0, instructions: 1, branches: 0, mispredicted: 0 },
    kernel: NOTHING,
    tsc: 0,
};
const NOTHING: Executed = Executed { cycles: 0, instructions: 0, branches: 0, mispredicted: 0 };

/// A hundred switches between two states, and as many samples.
fn switches(driver: &mut Driver<'_>, ids: [u64; 2]) {
    let pages = [0, 1].map(state_page);
    for round in 0..100 {
        let (prev, next) = (1 - round % 2, round % 2);
        let filled = Page { prev: pages[prev], next: pages[next], next_id: ids[next], ..Page::default() };
        driver.mem.write_slice(filled.as_bytes(), GuestAddress(driver.page)).unwrap();
        // A switch, a suspend and a resume come to the same, so that the second of them finds what it needs.
        let numbers: &[u64] = if round % 4 < 2 { &[op::SWITCH] } else { &[op::SUSPEND, op::RESUME] };
        for &number in numbers {
            assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_DOORBELL, number, driver.mem), MsrOutcome::Handled);
        }
        driver.pmu.host_mut().execute(&WORK);
        driver.mem.write_obj(pages[next], GuestAddress(driver.page + 8)).unwrap();
        assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_DOORBELL, op::SAMPLE, driver.mem), MsrOutcome::Handled);
    }
}

#[test]
fn switch_suspend_resume_and_sample_do_not_allocate() {
    let mem = memory();
    let mut driver = Driver::new(vcpu(&ControlTable::new(), 6), &mem, 0);
    let ids = [[USR | 0xC0, USR | 0xC2, USR | 0x76], [USR | 0xC0, OS | 0xC0, OS | 0xC2]]
        .map(|events| driver.update_control(0, control(&events)).unwrap());
    let pages = [0, 1].map(state_page);
    for n in [0, 1] {
        assert_eq!(driver.resume(pages[n], ids[n]), (0, 0));
    }
    assert_eq!(allocations(|| switches(&mut driver, ids)), 0);
    driver.pmu.stop(&mem);
    let shown = driver.pmu.snapshot();
    assert_eq!((shown.pv.errors, shown.pv.retries, shown.lost), (0, 0, 0));
    assert_eq!((shown.pv.switch, shown.pv.suspend, shown.pv.sample), (50, 50, 100));
    assert_eq!(shown.events[0].total, 100, "all of it was counted");
    assert_eq!(shown.writes.made, 5, "and nothing was loaded twice");
}

#[test]
fn i_mode_switches_overflows_and_their_interrupts_do_not_allocate() {
    let mem = memory();
    let mut driver = Driver::new(vcpu(&ControlTable::new(), 6), &mem, 0);
    let ids = [-3, -7].map(|ireset| {
        let mut control = CpuControl { nractrs: 0, nrictrs: 1, ..control(&[USR | 1 << 20 | 0xC0]) };
        control.ireset[0] = ireset;
        driver.update_control(0, control).unwrap()
    });
    for n in [0, 1] {
        let mut page = state(&mem, state_page(n));
        page.pmc[0].start = -3i32 as u32;
        write_state(&mem, state_page(n), &page);
        assert_eq!(driver.resume(state_page(n), ids[n]), (0, 0));
    }
    let mut interrupts = 0;
    let allocated = allocations(|| {
        for _ in 0..10 {
            switches(&mut driver, ids);
            for _ in 0..10 {
                driver.pmu.host_mut().execute(&WORK);
                driver.pmu.kicked();
                interrupts += u32::from(driver.pmu.take_pmi());
            }
        }
    });
    assert_eq!(allocated, 0);
    assert!(interrupts > 0);
    let shown = driver.pmu.snapshot();
    assert!(shown.overflows > 100 && shown.lost == 0, "{shown:?}");
}

#[test]
fn a_state_that_stops_at_its_overflow_and_goes_on_does_not_allocate() {
    let mem = memory();
    let mut driver = Driver::new(vcpu(&ControlTable::new(), 6), &mem, 0);
    assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_VECTOR, 0xF6, &mem), MsrOutcome::Handled);
    let mut control = CpuControl { nractrs: 0, nrictrs: 1, ..control(&[USR | 1 << 20 | 0xC0]) };
    control.ireset[0] = -3;
    let next = state_page(0);
    let next_id = driver.update_control(next, control).unwrap();
    let stop_id = driver.update_control(0, guest::control(&[])).unwrap();
    let resumed = Page { prev: next, next, next_id, stop_id, ..Page::default() };
    assert_eq!(driver.resume(next, next_id), (0, 0));
    let mut stop = |rounds: u64| {
        for _ in 0..rounds {
            assert_eq!(driver.doorbell(op::SWITCH, resumed).result, 0);
            for _ in 0..5 {
                driver.pmu.host_mut().execute(&WORK);
                driver.pmu.kicked();
                driver.pmu.take_vector(&mem);
            }
        }
    };
    // What it goes on with is new to this vCPU.
    stop(1);
    assert_eq!(allocations(|| stop(100)), 0);
    let shown = driver.pmu.snapshot();
    assert_eq!((shown.overflows, shown.pmis, state(&mem, next).pmc[0].sum), (101, 101, 303));
}

#[test]
fn accesses_of_emulated_registers_do_not_allocate() {
    const EVNTSEL: u32 = 0xC001_0000;
    const COUNTER: u32 = 0xC001_0004;
    let select = u64::from(USR | 1 << 20 | 0xC0);
    let mem = memory();
    let mut pmu = vcpu(&ControlTable::new(), 6);
    // The first time an event is seen it gets a row of the totals.
    assert_eq!(pmu.wrmsr(EVNTSEL, select, &mem), MsrOutcome::Handled);
    let mut counted = 0;
    let allocated = allocations(|| {
        for round in 0..100u64 {
            // Off and on, unchanged, and a counter that is about to overflow now and then.
            for value in [select & !u64::from(1u32 << 22), select, select] {
                assert_eq!(pmu.wrmsr(EVNTSEL, value, &mem), MsrOutcome::Handled);
            }
            assert_eq!(pmu.wrmsr(COUNTER, (round % 3).wrapping_neg(), &mem), MsrOutcome::Handled);
            pmu.host_mut().execute(&WORK);
            for msr in [COUNTER, EVNTSEL, MSR_BASE + MSR_RDPMC] {
                assert!(matches!(pmu.rdmsr(msr), MsrOutcome::Value(_)));
            }
            assert_eq!(pmu.rdmsr(MSR_BASE + MSR_RDPMC + 9), MsrOutcome::GpFault);
            pmu.kicked();
            pmu.kicked();
            counted += u32::from(pmu.take_pmi());
        }
    });
    assert_eq!(allocated, 0);
    assert_eq!(counted, 33, "-1 wraps, -2 and 0 do not");
    let shown = pmu.snapshot();
    assert_eq!((shown.registers.unchanged, shown.registers.lost, shown.writes.made), (100, 0, 1));
    assert_eq!(shown.events[0].total, 100);
}
