//! Interrupt-mode counters at the paravirtual interface.

mod guest;

use std::sync::Arc;

use guest::*;
use perfctr_abi::layout::{CpuControl, CpuState};
use perfctr_abi::pv::{Page, op};
use vm_memory::GuestMemoryMmap;
use vpmu::sim::{Executed, SimPmu, Work};
use vpmu::{ControlTable, VirtualPmu};

const INT: u32 = 1 << 20;

/// An a-mode counter of branches and an i-mode counter of instructions, user mode.
fn both(ireset: i32) -> CpuControl {
    let mut control = control(&[USR | 0xC2, USR | INT | 0xC0]);
    (control.nractrs, control.nrictrs) = (1, 1);
    control.ireset[1] = ireset;
    control
}

fn instructions(count: u64) -> Work {
    let user = Executed { instructions: count, branches: count / 2, ..Executed::default() };
    Work { user, ..Work::default() }
}

/// The guest executes, and leaves for the VMM if a threshold is reached. Gives the number of PMIs.
fn run(driver: &mut Driver<'_>, count: u64) -> u64 {
    driver.pmu.host_mut().execute(&instructions(count));
    if driver.pmu.host_mut().passed_threshold() {
        driver.pmu.kicked();
    }
    u64::from(driver.pmu.take_pmi())
}

fn driver(mem: &GuestMemoryMmap) -> Driver<'_> {
    Driver::new(vcpu(&ControlTable::new(), 6), mem, 0)
}

fn suspend(driver: &mut Driver<'_>, n: usize) -> Page {
    driver.doorbell(op::SUSPEND, Page { prev: state_page(n), overflow_prev: 0xFF, ..Page::default() })
}

#[test]
fn overflows_at_the_step_from_negative_to_non_negative() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(state_page(0), both(-100)).unwrap();
    assert_eq!(state(&mem, state_page(0)).pmc[1].start as i32, -100, "set up by UPDATE_CONTROL");
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    assert_eq!(run(&mut driver, 99), 0);
    assert_eq!(run(&mut driver, 1), 1, "-1 to 0");
    assert_eq!(run(&mut driver, 500), 0, "it goes on counting, and interrupts once");
    let page = suspend(&mut driver, 0);
    assert_eq!((page.result, page.overflow_prev, page.lost_prev), (0, 0b10, 0));
    let after = state(&mem, state_page(0));
    assert_eq!(
        (after.pmc[0].sum, after.pmc[1].sum),
        (49 + 250, 600),
        "the total is that of an a-mode counter"
    );
    assert_eq!(after.pmc[1].start as i32, -100, "identify_overflow has reset it");
    assert_eq!(after.isuspend_cpu, 0);

    // iresume.
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    assert_eq!(run(&mut driver, 99), 0);
    assert_eq!(run(&mut driver, 1), 1);
    let shown = driver.pmu.snapshot();
    assert_eq!((shown.pmis, shown.overflows, shown.lost), (2, 1, 0), "the second is still pending");
}

#[test]
fn a_suspended_counter_goes_on_where_it_stopped_whoever_ran_meanwhile() {
    let mem = memory();
    let mut driver = driver(&mem);
    let ids = [0, 1].map(|n| driver.update_control(state_page(n), both(-1000)).unwrap());
    assert_eq!(ids[0], ids[1]);
    assert_eq!(driver.resume(state_page(0), ids[0]), (0, 0));
    for round in 0..9 {
        assert_eq!(run(&mut driver, 100), 0, "{round}");
        assert_eq!(driver.switch(state_page(0), state_page(1), ids[1]), (0, 0));
        assert_eq!(state(&mem, state_page(0)).pmc[1].start as i32, -1000 + 100 * (round + 1));
        assert_eq!(run(&mut driver, 111), 0);
        assert_eq!(driver.switch(state_page(1), state_page(0), ids[0]), (0, 0));
    }
    assert_eq!(run(&mut driver, 99), 0);
    assert_eq!(run(&mut driver, 1), 1);
    let page = driver.doorbell(
        op::SWITCH,
        Page { prev: state_page(0), next: state_page(1), next_id: ids[1], ..Page::default() },
    );
    assert_eq!((page.result, page.overflow_prev), (0, 0b10));
    assert_eq!(run(&mut driver, 1), 1, "999 before");
    assert_eq!(suspend(&mut driver, 1).overflow_prev, 0b10);
}

/// Also after an overflow, and not where there are a-mode counters alone.
#[test]
fn the_page_names_the_cpu_on_which_i_mode_counters_were_suspended() {
    let mem = memory();
    let table = ControlTable::new();
    for (cpu, wanted, named) in [(3, both(-100), 3), (5, both(-1000), 5), (7, control(&[USR | 0xC2]), -1)] {
        let pmu = VirtualPmu::new(CONFIG, cpu, Arc::clone(&table), SimPmu::new(6));
        let mut driver = Driver::new(pmu, &mem, 0);
        write_state(&mem, state_page(0), &CpuState { isuspend_cpu: -1, ..CpuState::default() });
        let id = driver.update_control(state_page(0), wanted).unwrap();
        assert_eq!(driver.resume(state_page(0), id), (0, 0));
        assert_eq!(state(&mem, state_page(0)).isuspend_cpu, -1, "not yet");
        run(&mut driver, 200);
        suspend(&mut driver, 0);
        assert_eq!(state(&mem, state_page(0)).isuspend_cpu, named, "CPU {cpu}");
    }
}

#[test]
fn an_overflow_that_nobody_saw_is_found_at_suspend_and_reported_once() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(state_page(0), both(-5)).unwrap();
    driver.resume(state_page(0), id);
    driver.pmu.host_mut().execute(&instructions(5));
    assert_eq!(suspend(&mut driver, 0).overflow_prev, 0b10);
    assert!(!driver.pmu.take_pmi(), "the driver knows by the page");
    driver.pmu.kicked();
    assert!(!driver.pmu.take_pmi());
    driver.resume(state_page(0), id);
    assert_eq!(suspend(&mut driver, 0).overflow_prev, 0);
}

#[test]
fn another_control_in_between_does_not_lose_an_overflow() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(state_page(0), both(-5)).unwrap();
    driver.resume(state_page(0), id);
    driver.pmu.host_mut().execute(&instructions(7));
    // A new event interrupts the running interval.
    driver.update_control(state_page(1), control(&[USR | 0xC3])).unwrap();
    assert!(driver.pmu.take_pmi());
    assert_eq!(run(&mut driver, 1), 0);
    let page = suspend(&mut driver, 0);
    assert_eq!((page.overflow_prev, state(&mem, state_page(0)).pmc[1].sum), (0b10, 8));
}

#[test]
fn another_control_after_the_interrupt_does_not_give_it_again() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(state_page(0), both(-5)).unwrap();
    driver.resume(state_page(0), id);
    assert_eq!(run(&mut driver, 7), 1);
    // The driver has not come to it when another thread's control interrupts the interval, twice.
    for event in [0xC3, 0x76] {
        driver.update_control(state_page(1), control(&[USR | event])).unwrap();
        assert!(!driver.pmu.take_pmi());
    }
    assert_eq!(suspend(&mut driver, 0).overflow_prev, 0b10);
}

#[test]
fn the_host_is_called_only_when_a_threshold_must_be_lower() {
    let mem = memory();
    let mut driver = driver(&mem);
    let far = driver.update_control(state_page(0), both(i32::MIN)).unwrap();
    let near = driver.update_control(state_page(1), both(-1000)).unwrap();
    for _ in 0..50 {
        driver.resume(state_page(0), far);
        assert_eq!(run(&mut driver, 10), 0);
        driver.switch(state_page(0), state_page(1), near);
        assert_eq!(run(&mut driver, 10), 0);
        suspend(&mut driver, 1);
    }
    let writes = driver.pmu.snapshot().writes;
    assert_eq!(writes.made, 2, "two events");
    // The first for 2^31, sooner than the largest threshold; the second for 1000; after that nothing is due sooner, but
    // the threshold is reached early, once.
    assert!(writes.thresholds_set < 6 && writes.thresholds_kept > 90, "{writes:?}");
}

#[test]
fn any_start_that_a_guest_invents_is_harmless() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(state_page(0), both(-5)).unwrap();
    for start in [0u32, 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX] {
        let mut page = state(&mem, state_page(0));
        page.pmc[1].start = start;
        write_state(&mem, state_page(0), &page);
        assert_eq!(driver.resume(state_page(0), id), (0, 0));
        let pmi = run(&mut driver, 3);
        assert_eq!(pmi, u64::from(start == u32::MAX));
        let page = suspend(&mut driver, 0);
        assert_eq!(page.overflow_prev, if start == u32::MAX { 0b10 } else { 0 });
        if start != u32::MAX {
            assert_eq!(state(&mem, state_page(0)).pmc[1].start, start.wrapping_add(3));
        }
    }
}

#[test]
fn a_counter_that_restarts_at_minus_one_overflows_with_each_event() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(state_page(0), both(-1)).unwrap();
    for round in 1..=5 {
        assert_eq!(driver.resume(state_page(0), id), (0, 0));
        assert_eq!(run(&mut driver, 0), 0, "no event, no overflow");
        assert_eq!(run(&mut driver, 1), 1);
        let page = suspend(&mut driver, 0);
        assert_eq!((page.result, page.overflow_prev), (0, 0b10));
        let shown = state(&mem, state_page(0)).pmc[1];
        assert_eq!((shown.sum, shown.start as i32), (round, -1));
    }
}
