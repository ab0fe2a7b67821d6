//! The paravirtual interface, operation by operation and result by result.

mod guest;

use guest::*;
use perfctr_abi::layout::{CpuControl, CpuState};
use perfctr_abi::pv::op;
use perfctr_abi::pv::{MSR_BASE, MSR_DOORBELL, MSR_PAGE, Page};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vpmu::sim::{Executed, SimPmu, Work};
use vpmu::{ControlTable, HostFamily, Model, MsrOutcome, PmuConfig, VirtualPmu, WriteCounts};

const EPERM: i32 = -1;
const ESRCH: i32 = -3;
const EAGAIN: i32 = -11;
const EFAULT: i32 = -14;
const EBUSY: i32 = -16;
const EINVAL: i32 = -22;
const ENOSYS: i32 = -38;
const EOPNOTSUPP: i32 = -95;

/// A thousand user instructions, 100 of them branches, in 2000 cycles; a tenth of that in kernel mode.
const WORK: Work = Work {
    user: Executed { cycles: 2000, instructions: 1000, branches: 100, mispredicted: 5 },
    kernel: Executed { cycles: 200, instructions: 100, branches: 10, mispredicted: 1 },
    tsc: 3000,
};

fn driver(mem: &GuestMemoryMmap) -> Driver<'_> {
    Driver::new(vcpu(&ControlTable::new(), 6), mem, 0)
}

#[test]
fn the_page_register() {
    let mem = memory();
    let mut pmu = vcpu(&ControlTable::new(), 6);
    let register = MSR_BASE + MSR_PAGE;
    assert_eq!(pmu.rdmsr(register), MsrOutcome::Value(0));
    for bad in [2, page(0), page(0) | 2, page(0) | 3, page(0) + 9, 1, page(PAGES) | 1, u64::MAX, !0xFFF | 1] {
        assert_eq!(pmu.wrmsr(register, bad, &mem), MsrOutcome::GpFault, "{bad:#x}");
        assert_eq!(pmu.rdmsr(register), MsrOutcome::Value(0));
    }
    for good in [page(0) | 1, page(PAGES - 1) | 1, 0] {
        assert_eq!(pmu.wrmsr(register, good, &mem), MsrOutcome::Handled);
        assert_eq!(pmu.rdmsr(register), MsrOutcome::Value(good));
    }
}

#[test]
fn the_doorbell_needs_a_page_and_cannot_be_read() {
    let mem = memory();
    let mut pmu = vcpu(&ControlTable::new(), 6);
    assert_eq!(pmu.wrmsr(MSR_BASE + MSR_DOORBELL, 1, &mem), MsrOutcome::GpFault);
    assert_eq!(pmu.rdmsr(MSR_BASE + MSR_DOORBELL), MsrOutcome::GpFault);
    for other in [MSR_BASE - 1, 0, u32::MAX, 0xC001_0008] {
        assert_eq!(pmu.wrmsr(other, 0, &mem), MsrOutcome::NotHandled);
        assert_eq!(pmu.rdmsr(other), MsrOutcome::NotHandled);
    }
}

#[test]
fn a_thread_is_counted_while_it_is_attached() {
    let mem = memory();
    let mut driver = driver(&mem);
    let wanted = control(&[USR | 0xC0, OS | 0xC2, USR | OS | 0x76]);
    let mut before = CpuState { tsc_sum: 7, ..CpuState::default() };
    before.pmc[..3].iter_mut().for_each(|pmc| pmc.start = 5);
    write_state(&mem, state_page(0), &before);
    let id = driver.update_control(state_page(0), wanted).unwrap();
    let updated = state(&mem, state_page(0));
    assert_eq!((updated.cstatus, updated.id, updated.tsc_sum), (0x8000_0303, id as u32, 7));
    assert_eq!(updated.pmc[..4].iter().map(|pmc| pmc.map).collect::<Vec<_>>(), [0, 1, 2, 0]);

    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    let resumed = state(&mem, state_page(0));
    assert_eq!((resumed.tsc_start, resumed.tsc_sum), (3000, 7));
    assert!(
        resumed.pmc.iter().all(|pmc| pmc.start == 0),
        "of host counters that run on beside others nothing is shown"
    );

    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.sample(state_page(0)), 0);
    let sampled = state(&mem, state_page(0));
    assert_eq!((sampled.tsc_start, sampled.tsc_sum), (6000, 3007));
    assert_eq!(sampled.pmc[..3].iter().map(|pmc| pmc.sum).collect::<Vec<_>>(), [1000, 10, 2200]);
    assert!(sampled.pmc.iter().all(|pmc| pmc.start == 0));

    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(0)), 0);
    driver.pmu.host_mut().execute(&WORK);
    let suspended = state(&mem, state_page(0));
    assert_eq!(suspended.tsc_sum, 6007);
    assert_eq!(suspended.pmc[..4].iter().map(|pmc| pmc.sum).collect::<Vec<_>>(), [2000, 20, 4400, 0]);

    let shown = driver.pmu.snapshot();
    assert_eq!((shown.tsc, shown.lost, shown.others, shown.attached), (6000, 0, 0, None));
    let rows: Vec<_> =
        shown.events.iter().map(|row| (row.select.evntsel as u32, row.total, row.loaded)).collect();
    assert_eq!(rows, [(USR | 0xC0, 2000, true), (OS | 0xC2, 20, true), (USR | OS | 0x76, 4400, true)]);
    assert_eq!(shown.writes, WriteCounts { made: 3, avoided: 6, ..WriteCounts::default() });
}

#[test]
fn a_processor_without_counters_has_its_tsc_sampled() {
    let mem = memory();
    let config = PmuConfig { model: Model::Generic, ..CONFIG };
    let mut driver = Driver::new(VirtualPmu::new(config, 0, ControlTable::new(), SimPmu::new(0)), &mem, 0);
    let id = driver.update_control(state_page(0), control(&[])).unwrap();
    assert_eq!(state(&mem, state_page(0)).cstatus, 0x8000_0000);
    assert_eq!(driver.update_control(0, control(&[USR | 0xC0])), Err(EINVAL));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(0)), 0);
    let sampled = state(&mem, state_page(0));
    assert_eq!((sampled.tsc_start, sampled.tsc_sum), (3000, 3000));
}

#[test]
fn a_control_without_the_tsc_leaves_its_state_alone() {
    let mem = memory();
    let mut driver = driver(&mem);
    write_state(&mem, state_page(0), &CpuState { tsc_start: 5, tsc_sum: 7, ..CpuState::default() });
    let without = CpuControl { tsc_on: 0, ..control(&[USR | 0xC0]) };
    let id = driver.update_control(state_page(0), without).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(0)), 0);
    let suspended = state(&mem, state_page(0));
    assert_eq!((suspended.cstatus, suspended.pmc[0].sum), (0x0000_0101, 1000));
    assert_eq!((suspended.tsc_start, suspended.tsc_sum), (5, 7));
    assert_eq!(driver.pmu.snapshot().tsc, 0);
}

#[test]
fn switching_between_controls_that_fit_loads_nothing() {
    let mem = memory();
    let mut driver = driver(&mem);
    let ids = [&[USR | 0xC0, USR | 0xC2][..], &[USR | 0xC0, OS | 0xC3][..]]
        .map(|events| driver.update_control(0, control(events)).unwrap());
    assert_ne!(ids[0], ids[1]);
    let loads = driver.pmu.host().loads();
    assert_eq!(loads, 3);
    assert_eq!(driver.resume(state_page(0), ids[0]), (0, 0));
    for _ in 0..10 {
        driver.pmu.host_mut().execute(&WORK);
        assert_eq!(driver.switch(state_page(0), state_page(1), ids[1]), (0, 0));
        driver.pmu.host_mut().execute(&WORK);
        driver.pmu.host_mut().execute(&WORK);
        assert_eq!(driver.switch(state_page(1), state_page(0), ids[0]), (0, 0));
    }
    assert_eq!(driver.suspend(state_page(0)), 0);
    assert_eq!(driver.pmu.host().loads(), loads);
    let states = [0, 1].map(|n| state(&mem, state_page(n)));
    assert_eq!((states[0].pmc[0].sum, states[0].pmc[1].sum), (10_000, 1000));
    assert_eq!((states[1].pmc[0].sum, states[1].pmc[1].sum), (20_000, 20));
}

#[test]
fn a_control_of_what_runs_is_one_operation() {
    let mem = memory();
    let mut driver = driver(&mem);
    let begun = driver.control(0, state_page(0), control(&[USR | 0xC0]));
    assert_eq!((begun.result, begun.lost, begun.lost_prev, begun.overflow_prev), (0, 0, 0, 0));
    driver.pmu.host_mut().execute(&WORK);

    let changed = driver.control(state_page(0), state_page(0), control(&[USR | 0xC2, USR | 0xC0]));
    assert_eq!((changed.result, changed.lost, changed.lost_prev), (0, 0, 0));
    assert_ne!(changed.id, begun.id);
    let shown = state(&mem, state_page(0));
    assert_eq!((shown.cstatus, shown.id), (0x8000_0202, changed.id as u32));
    assert_eq!((shown.pmc[0].sum, shown.tsc_sum), (1000, 3000), "sums are the guest's to set");
    assert_eq!((shown.pmc[0].start, shown.pmc[1].start, shown.tsc_start), (0, 0, 3000));
    driver.pmu.host_mut().execute(&WORK);

    // Another state runs instead.
    assert_eq!(driver.control(state_page(0), state_page(1), control(&[OS | 0xC0])).result, 0);
    driver.pmu.host_mut().execute(&WORK);
    // Nothing is counted any more: the last control asks for nothing.
    let nothing = driver.control(state_page(1), state_page(1), CpuControl::default());
    assert_eq!((nothing.result, state(&mem, state_page(1)).cstatus), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(1)), ESRCH);
    let states = [0, 1].map(|n| state(&mem, state_page(n)));
    assert_eq!((states[0].pmc[0].sum, states[0].pmc[1].sum, states[0].tsc_sum), (1100, 1000, 6000));
    assert_eq!((states[1].pmc[0].sum, states[1].tsc_sum), (100, 3000));
    let shown = driver.pmu.snapshot();
    assert_eq!((shown.pv.control, shown.pv.errors, shown.lost, shown.attached), (4, 1, 0, None));
}

#[test]
fn a_control_that_is_refused_leaves_nothing_attached() {
    let mem = memory();
    let good = control(&[USR | 0xC0]);
    let many = control(&[USR | 0xC0, USR | 0xC2, USR | 0xC3, USR | 0x76]);
    let refused = [
        (control(&[USR | 0x0020_00C0]), EPERM),
        (control(&[0xC0]), EINVAL),
        (control(&[USR | 0x04FF]), EOPNOTSUPP),
        (many, EBUSY),
    ];
    for (bad, result) in refused {
        let mut driver = driver(&mem);
        driver.pmu.host_mut().take(3);
        write_state(&mem, state_page(0), &CpuState::default());
        assert_eq!(driver.control(0, state_page(0), good).result, 0);
        driver.pmu.host_mut().execute(&WORK);
        let before = driver.control(state_page(0), state_page(0), bad);
        assert_eq!((before.result, before.lost_prev), (result, 0));
        driver.pmu.host_mut().execute(&WORK);
        let left = state(&mem, state_page(0));
        assert_eq!((left.pmc[0].sum, left.tsc_sum, left.cstatus), (1000, 3000, 0x8000_0101), "{result}");
        assert_eq!(driver.suspend(state_page(0)), ESRCH);
    }
}

#[test]
fn a_control_of_bad_addresses_does_nothing() {
    let mem = memory();
    let mut driver = driver(&mem);
    let good = control(&[USR | 0xC0]);
    assert_eq!(driver.control(0, state_page(0), good).result, 0);
    for bad in [state_page(0) + 8, page(PAGES), u64::MAX, 1] {
        assert_eq!(driver.control(state_page(0), bad, good).result, EFAULT, "{bad:#x}");
        assert_eq!(driver.control(bad, state_page(0), good).result, EFAULT, "{bad:#x}");
        assert_eq!(driver.control(bad, state_page(1), good).result, EFAULT, "{bad:#x}");
    }
    assert_eq!(driver.pmu.snapshot().attached.map(|attached| attached.page), Some(state_page(0)));
    assert_eq!(driver.control(state_page(1), state_page(2), good).result, ESRCH);
    assert_eq!(driver.suspend(state_page(2)), 0, "it was attached all the same");
    assert_eq!(driver.control(0, 0, good).result, 0);
    assert_eq!(driver.pmu.snapshot().attached, None);
}

#[test]
fn a_control_reports_the_overflow_of_the_interval_it_ends() {
    let mem = memory();
    let mut driver = driver(&mem);
    let mut interrupting = control(&[USR | 0x0010_00C0]);
    (interrupting.nractrs, interrupting.nrictrs, interrupting.ireset[0]) = (0, 1, -600);
    assert_eq!(driver.control(0, state_page(0), interrupting).result, 0);
    driver.pmu.host_mut().execute(&WORK);
    // Its kick is on the way; the interval ends before it comes.
    interrupting.ireset[0] = -1500;
    let reported = driver.control(state_page(0), state_page(0), interrupting);
    assert_eq!((reported.result, reported.overflow_prev), (0, 1));
    assert_eq!(state(&mem, state_page(0)).pmc[0].start as i32, -1500);
    driver.pmu.kicked();
    assert!(!driver.pmu.take_pmi(), "reported once");
    driver.pmu.host_mut().execute(&WORK);
    driver.pmu.kicked();
    assert!(!driver.pmu.take_pmi(), "1000 of 1500");
    driver.pmu.host_mut().execute(&WORK);
    driver.pmu.kicked();
    assert!(driver.pmu.take_pmi());
}

#[test]
fn sums_wrap_as_the_layout_says() {
    let mem = memory();
    let mut driver = driver(&mem);
    driver.pmu.host_mut().set_origin(u32::MAX.into());
    let id = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    let mut full = CpuState { tsc_sum: u64::MAX, ..CpuState::default() };
    full.pmc[0].sum = u64::MAX;
    write_state(&mem, state_page(0), &full);
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    let mut long = WORK;
    long.user.instructions = 1 << 40;
    driver.pmu.host_mut().execute(&long);
    assert_eq!(driver.suspend(state_page(0)), 0);
    let suspended = state(&mem, state_page(0));
    assert_eq!((suspended.pmc[0].sum, suspended.tsc_sum), ((1 << 40) - 1, 2999));
    assert_eq!(driver.pmu.snapshot().events[0].total, 1 << 40, "the host's total is its own");
}

#[test]
fn starts_in_guest_memory_are_not_believed() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    let mut forged = state(&mem, state_page(0));
    (forged.pmc[0].start, forged.tsc_start, forged.cstatus, forged.id) = (12345, 6789, u32::MAX, 99);
    write_state(&mem, state_page(0), &forged);
    assert_eq!(driver.suspend(state_page(0)), 0);
    let suspended = state(&mem, state_page(0));
    assert_eq!((suspended.pmc[0].sum, suspended.tsc_sum, suspended.cstatus), (1000, 3000, u32::MAX));
}

#[test]
fn resume_suspends_what_is_attached() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    for n in [0, 1, 1] {
        assert_eq!(driver.resume(state_page(n), id), (0, 0));
        driver.pmu.host_mut().execute(&WORK);
    }
    assert_eq!(driver.suspend(state_page(0)), ESRCH);
    assert_eq!(driver.suspend(state_page(1)), 0);
    assert_eq!([0, 1].map(|n| state(&mem, state_page(n)).pmc[0].sum), [1000, 2000]);
}

#[test]
fn esrch_for_a_state_that_is_not_attached() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    assert_eq!(driver.suspend(state_page(0)), ESRCH);
    assert_eq!(driver.sample(state_page(0)), ESRCH);
    assert_eq!(driver.switch(state_page(0), state_page(1), id), (ESRCH, 0));
    assert_eq!(driver.sample(state_page(1)), 0, "the switch has attached `next` all the same");
    assert_eq!(driver.suspend(state_page(1)), 0);
    assert_eq!(driver.suspend(state_page(1)), ESRCH);
    assert_eq!(
        driver.switch(state_page(0), state_page(1), 99),
        (EAGAIN, 0),
        "what can be acted on comes first"
    );
}

#[test]
fn zero_names_no_state() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    assert_eq!((driver.suspend(0), driver.sample(0)), (0, 0));
    assert_eq!(driver.resume(0, u64::MAX), (0, 0));
    assert_eq!(driver.switch(0, state_page(0), id), (0, 0));
    assert_eq!(driver.resume(0, id), (0, 0));
    assert_eq!(driver.pmu.snapshot().attached.unwrap().page, state_page(0), "resuming nothing is nothing");
    assert_eq!(driver.switch(state_page(0), 0, 0), (0, 0));
    assert_eq!(driver.pmu.snapshot().attached, None);
}

#[test]
fn eagain_for_an_id_that_is_gone() {
    let mem = memory();
    let table = ControlTable::with_limit(1);
    let mut driver = Driver::new(vcpu(&table, 6), &mem, 0);
    let mut other = Driver::new(vcpu(&table, 6), &mem, 1);
    let first = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    let second = driver.update_control(0, control(&[USR | 0xC2])).unwrap();
    for unknown in [0, first, second + 1, u64::MAX] {
        assert_eq!(driver.resume(state_page(0), unknown), (EAGAIN, 0), "{unknown}");
    }
    assert_eq!(driver.resume(state_page(0), second), (0, 0));

    // What a vCPU has run once it needs no table for; another vCPU does.
    let third = driver.update_control(0, control(&[USR | 0xC3])).unwrap();
    assert_eq!(driver.switch(state_page(0), state_page(1), second), (0, 0));
    assert_eq!(other.resume(state_page(2), second), (EAGAIN, 0));
    assert_eq!(other.resume(state_page(2), third), (0, 0));

    // A switch to it ends the interval of `prev` all the same.
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.switch(state_page(1), state_page(0), first), (EAGAIN, 0));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.pmu.snapshot().attached, None);
    assert_eq!(state(&mem, state_page(1)).pmc[0].sum, 100);
    assert_eq!(driver.pmu.snapshot().pv.retries, 5);
}

#[test]
fn efault_for_what_is_not_a_page_of_guest_memory() {
    let mem = memory();
    let mut driver = driver(&mem);
    let wanted = control(&[USR | 0xC0]);
    let id = driver.update_control(0, wanted).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    for bad in [1, 8, state_page(0) + 8, 0x1000, page(PAGES), page(PAGES) - 8, u64::MAX, !0xFFF] {
        assert_eq!(driver.update_control(bad, wanted), Err(EFAULT), "{bad:#x}");
        assert_eq!(driver.suspend(bad), EFAULT);
        assert_eq!(driver.sample(bad), EFAULT);
        assert_eq!(driver.resume(bad, id).0, EFAULT);
        assert_eq!(driver.switch(state_page(0), bad, id).0, EFAULT);
        assert_eq!(driver.switch(bad, state_page(1), id).0, EFAULT);
        assert_eq!(driver.pmu.snapshot().attached.unwrap().page, state_page(0), "nothing was done");
    }
}

#[test]
fn refused_controls_say_why() {
    let mem = memory();
    let mut driver = driver(&mem);
    let reserved = control(&[USR | 0xC0 | 1 << 21]);
    let disabled = control(&[0x0001_00C0]);
    // Its restart value is 0, which is not negative.
    let imode = CpuControl { nractrs: 0, nrictrs: 1, ..control(&[USR | 0xC0 | 1 << 20]) };
    let unknown = control(&[USR | 0x41]);
    for (refused, result) in [(reserved, EPERM), (disabled, EINVAL), (imode, EINVAL), (unknown, EOPNOTSUPP)] {
        assert_eq!(driver.update_control(state_page(0), refused), Err(result));
    }
    assert_eq!(state(&mem, state_page(0)), CpuState::default());
    driver.pmu.host_mut().fail_loads(Some(13));
    assert_eq!(driver.update_control(0, control(&[USR | 0xC0])), Err(EOPNOTSUPP));
    assert!(driver.pmu.snapshot().last_refusal.unwrap().contains("denied"));
    driver.pmu.host_mut().fail_loads(None);
    driver.pmu.host_mut().take(6);
    assert_eq!(driver.update_control(0, control(&[USR | 0xC0])), Err(EBUSY));
    assert_eq!(driver.pmu.snapshot().pv.errors, 6);
}

#[test]
fn events_that_the_host_does_not_know_are_refused_before_the_host_is_asked() {
    let mem = memory();
    let config = PmuConfig { host: HostFamily::Intel.processor(), ..CONFIG };
    let mut driver = Driver::new(VirtualPmu::new(config, 0, ControlTable::new(), SimPmu::new(4)), &mem, 0);
    assert_eq!(driver.update_control(0, control(&[USR | 0x40])), Err(EOPNOTSUPP));
    assert_eq!(driver.pmu.host().loads(), 0);
    assert!(driver.pmu.snapshot().last_refusal.unwrap().contains("cannot count"));
    assert!(driver.update_control(0, control(&[USR | 0xC0])).is_ok());
}

#[test]
fn a_control_may_not_change_under_an_attached_state() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(state_page(0), control(&[USR | 0xC0])).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    assert_eq!(driver.update_control(state_page(0), control(&[USR | 0xC2])), Err(EINVAL));
}

#[test]
fn a_control_is_tried_while_another_state_is_attached() {
    let mem = memory();
    let mut driver = Driver::new(vcpu(&ControlTable::new(), 4), &mem, 0);
    let four = |base| control(&[0x76, 0xC0, 0xC2, 0xC3].map(|event| base | event));
    let id = driver.update_control(0, four(USR)).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    assert!(driver.update_control(0, four(OS)).is_ok());
    driver.pmu.host_mut().execute(&WORK);
    driver.pmu.host_mut().refuse(0x76);
    assert_eq!(driver.update_control(0, control(&[USR | OS | 0x76])), Err(EOPNOTSUPP));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(0)), 0);
    let sums = state(&mem, state_page(0)).pmc.map(|pmc| pmc.sum);
    assert_eq!(sums[..4], [4000, 3000, 300, 15]);
    assert_eq!(driver.pmu.snapshot().lost, 1, "0x76 had to make room and could not be loaded again");
}

#[test]
fn enosys_for_what_is_no_operation() {
    let mem = memory();
    let mut driver = driver(&mem);
    for number in [0, 7, 1 << 32 | 1, u64::MAX] {
        assert_eq!(driver.doorbell(number, Page::default()).result, ENOSYS);
    }
    assert_eq!(driver.pmu.snapshot().pv.unknown, 4);
}

#[test]
fn counters_that_cannot_be_loaded_are_lost_and_come_back() {
    let mem = memory();
    let table = ControlTable::new();
    let mut driver = Driver::new(vcpu(&table, 4), &mem, 0);
    let id = driver.update_control(0, control(&[USR | 0xC0, USR | 0xC2])).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);

    // Taken while it counts: the interval is not counted for the counter that broke.
    driver.pmu.host_mut().take(3);
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(0)), 0);
    assert_eq!(driver.pmu.snapshot().lost, 1);
    assert_eq!(state(&mem, state_page(0)).pmc.map(|pmc| pmc.sum)[..2], [2000, 0]);

    // Still taken: reported.
    assert_eq!(driver.resume(state_page(0), id), (0, 0b10));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(0)), 0);
    assert_eq!(state(&mem, state_page(0)).pmc.map(|pmc| pmc.sum)[..2], [3000, 0]);

    // Given back: loaded again.
    driver.pmu.host_mut().take(0);
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);

    // Broken and mended while nobody looked: noticed at the end of the interval, loaded anew at the next resume.
    driver.pmu.host_mut().take(3);
    driver.pmu.host_mut().take(0);
    assert_eq!(driver.switch(state_page(0), state_page(1), id), (0, 0));
    assert_eq!(state(&mem, state_page(0)).pmc.map(|pmc| pmc.sum)[..2], [4000, 0]);
    assert_eq!(driver.suspend(state_page(1)), 0);
    driver.pmu.host_mut().take(3);
    driver.pmu.host_mut().take(0);
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(0)), 0);
    assert_eq!(state(&mem, state_page(0)).pmc.map(|pmc| pmc.sum)[..2], [5000, 100]);
    assert_eq!(driver.pmu.snapshot().lost, 3);
}

#[test]
fn a_counter_that_stopped_while_attached_is_reported() {
    let mem = memory();
    let table = ControlTable::new();
    let mut driver = Driver::new(vcpu(&table, 4), &mem, 0);
    let id = driver.update_control(0, control(&[USR | 0xC0, USR | 0xC2])).unwrap();
    let lost_prev = |driver: &mut Driver<'_>, number| {
        let page = Page { prev: state_page(0), next: state_page(1), next_id: id, ..Page::default() };
        let page = driver.doorbell(number, Page { lost_prev: 0xFF, ..page });
        (page.result, page.lost_prev)
    };
    for number in [op::SUSPEND, op::SAMPLE, op::SWITCH] {
        assert_eq!(driver.resume(state_page(0), id), (0, 0));
        driver.pmu.host_mut().execute(&WORK);
        assert_eq!(lost_prev(&mut driver, op::SAMPLE), (0, 0));
        // Broken and mended while nobody looks.
        driver.pmu.host_mut().take(3);
        driver.pmu.host_mut().take(0);
        assert_eq!(lost_prev(&mut driver, number), (0, 0b10), "operation {number}");
        // Reported once.
        assert_eq!(driver.resume(state_page(0), id), (0, 0));
        assert_eq!(lost_prev(&mut driver, op::SUSPEND), (0, 0), "operation {number}");
    }
}

#[test]
fn a_state_page_that_disappears_costs_only_the_guest() {
    let small = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(BASE), 4096)]).unwrap();
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    let suspend = Page { prev: state_page(0), ..Page::default() };
    small.write_slice(zerocopy::IntoBytes::as_bytes(&suspend), GuestAddress(BASE)).unwrap();
    assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_DOORBELL, 2, &small), MsrOutcome::Handled);
    assert_eq!(driver.pmu.snapshot().attached, None);
    assert_eq!(driver.pmu.snapshot().events[0].total, 1000);
}

#[test]
fn withdrawing_the_page_and_stopping_end_the_interval() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_PAGE, page(1) | 1, &mem), MsrOutcome::Handled);
    driver.page = page(1);
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_PAGE, 0, &mem), MsrOutcome::Handled);
    assert_eq!(state(&mem, state_page(0)).pmc[0].sum, 2000);
    assert_eq!(driver.pmu.wrmsr(MSR_BASE + MSR_DOORBELL, 2, &mem), MsrOutcome::GpFault);

    let mut driver = Driver::new(driver.pmu, &mem, 0);
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    driver.pmu.stop(&mem);
    driver.pmu.stop(&mem);
    assert_eq!(state(&mem, state_page(0)).pmc[0].sum, 3000);
    assert_eq!(driver.pmu.snapshot().events[0].total, 3000);
}

#[test]
fn reset_leaves_guest_memory_alone_and_keeps_totals() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(0, control(&[USR | 0xC0])).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    let before = state(&mem, state_page(0));
    driver.pmu.host_mut().execute(&WORK);
    driver.pmu.reset();
    assert_eq!(state(&mem, state_page(0)), before);
    assert_eq!(driver.pmu.rdmsr(MSR_BASE + MSR_PAGE), MsrOutcome::Value(0));
    let shown = driver.pmu.snapshot();
    assert_eq!((shown.attached, shown.events[0].total, shown.tsc), (None, 1000, 3000));
    let mut driver = Driver::new(driver.pmu, &mem, 0);
    assert_eq!(driver.resume(state_page(0), id), (0, 0), "ids are the VM's, not the boot's");
}

#[test]
fn a_snapshot_includes_the_running_interval_and_changes_nothing() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(0, control(&[USR | 0xC0, USR | 0xC0])).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    let before = state(&mem, state_page(0));
    driver.pmu.host_mut().execute(&WORK);
    let shown = driver.pmu.snapshot();
    assert_eq!(shown, driver.pmu.snapshot());
    assert_eq!(state(&mem, state_page(0)), before);
    assert_eq!((shown.events[0].total, shown.tsc), (2000, 3000), "two counters with one event");
    assert_eq!((shown.source.as_str(), shown.model_name.as_str(), shown.cpu_type), ("sim", "AMD K8", 13));
    let text = serde_json::to_string(&shown).unwrap();
    assert!(text.contains(r#""model":"k8""#), "{text}");
    assert_eq!(serde_json::from_str::<vpmu::Snapshot>(&text).unwrap(), shown);
}

#[test]
fn nothing_enabled_is_a_valid_control() {
    let mem = memory();
    let mut driver = driver(&mem);
    let id = driver.update_control(state_page(0), CpuControl::default()).unwrap();
    assert_eq!(state(&mem, state_page(0)).cstatus, 0);
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    driver.pmu.host_mut().execute(&WORK);
    assert_eq!(driver.suspend(state_page(0)), 0);
    assert_eq!(state(&mem, state_page(0)), CpuState { id: id as u32, ..CpuState::default() });
}
