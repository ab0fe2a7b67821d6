//! The hot path allocates nothing.
#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

mod guest;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use guest::*;
use perfctr_abi::door::{MSR_BASE, MSR_DOORBELL, Page, op};
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
    let work = Work { user: Executed { instructions: 1, ..Executed::default() }, ..Work::default() };

    let before = ALLOCATIONS.get();
    for round in 0..100 {
        let (prev, next) = (1 - round % 2, round % 2);
        let filled = Page { prev: pages[prev], next: pages[next], next_id: ids[next], ..Page::default() };
        mem.write_slice(filled.as_bytes(), GuestAddress(driver.page)).unwrap();
        // A switch, a suspend and a resume come to the same, so that the second of them finds what it needs.
        let numbers: &[u64] = if round % 4 < 2 { &[op::SWITCH] } else { &[op::SUSPEND, op::RESUME] };
        for &number in numbers {
            assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_DOORBELL, number, &mem), MsrOutcome::Handled);
        }
        driver.pmu.host_mut().execute(&work);
        mem.write_obj(pages[next], GuestAddress(driver.page + 8)).unwrap();
        assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_DOORBELL, op::SAMPLE, &mem), MsrOutcome::Handled);
    }
    let allocations = ALLOCATIONS.get() - before;
    assert!(before > 0, "allocations are counted");

    assert_eq!(allocations, 0);
    driver.pmu.stop(&mem);
    let shown = driver.pmu.snapshot();
    assert_eq!((shown.door.errors, shown.door.retries, shown.lost), (0, 0, 0));
    assert_eq!((shown.door.switch, shown.door.suspend, shown.door.sample), (50, 50, 100));
    assert_eq!(shown.events[0].total, 100, "all of it was counted");
    assert_eq!(shown.writes.made, 5, "and nothing was loaded twice");
}
