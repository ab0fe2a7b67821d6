//! The emulated PMU, register by register, on families without global registers.

mod guest;

use guest::*;
use perfctr_abi::pv::{MSR_BASE, MSR_COUNT, MSR_RDPMC, MSR_RDPMC_FIXED, MSR_VECTOR};
use vm_memory::GuestMemoryMmap;
use vpmu::MsrOutcome::{GpFault, Handled, NotHandled, Value};
use vpmu::sim::{Executed, SimPmu, Work};
use vpmu::{ControlTable, MsrOutcome, PmuConfig, Select, VirtualPmu};

const EVNTSEL: u32 = 0xC001_0000;
const COUNTER: u32 = 0xC001_0004;
const ENABLE: u64 = 1 << 22;
const INT: u64 = 1 << 20;
/// Enabled, user mode.
const ON: u64 = USR as u64;

struct Guest {
    pmu: VirtualPmu<SimPmu>,
    mem: GuestMemoryMmap,
}

impl Guest {
    fn new() -> Self {
        Self { pmu: vcpu(&ControlTable::new(), 6), mem: memory() }
    }

    fn write(&mut self, msr: u32, value: u64) -> MsrOutcome {
        self.pmu.wrmsr(msr, value, &self.mem)
    }

    fn read(&mut self, msr: u32) -> u64 {
        match self.pmu.rdmsr(msr) {
            Value(value) => value,
            other => panic!("{msr:#x}: {other:?}"),
        }
    }

    /// Execute so many instructions in user mode. Gives whether a PMI is due.
    fn run(&mut self, instructions: u64) -> bool {
        let user = Executed { instructions, branches: instructions / 10, ..Executed::default() };
        self.pmu.host_mut().execute(&Work { user, tsc: instructions, ..Work::default() });
        if self.pmu.host_mut().passed_threshold() {
            self.pmu.kicked();
        }
        self.pmu.take_pmi()
    }
}

/// What Linux's perf does when a task is scheduled out and in with one event left.
#[test]
fn a_near_threshold_moves_with_the_counter() {
    let mut guest = Guest::new();
    let write = |guest: &mut Guest, value: i64| {
        assert_eq!(guest.write(EVNTSEL, (ON | INT | 0xC0) & !ENABLE), Handled);
        assert_eq!(guest.write(COUNTER, value as u64), Handled);
        assert_eq!(guest.write(EVNTSEL, ON | INT | 0xC0), Handled);
    };
    for near in [1, 2, 20, 63] {
        write(&mut guest, -near);
        write(&mut guest, -near - 1);
        let user = Executed { instructions: near as u64, ..Executed::default() };
        guest.pmu.host_mut().execute(&Work { user, ..Work::default() });
        assert!(
            !guest.pmu.host_mut().passed_threshold(),
            "left the guest {near} events on, one before the overflow"
        );
        assert!(guest.run(1));
    }
    let before = guest.pmu.snapshot().writes;
    write(&mut guest, -10_000);
    for _ in 0..100 {
        write(&mut guest, -20_000);
    }
    let writes = guest.pmu.snapshot().writes;
    assert_eq!(
        (writes.thresholds_set, writes.thresholds_kept),
        (before.thresholds_set + 1, before.thresholds_kept + 100)
    );
}

#[test]
fn a_counter_counts_while_it_is_enabled() {
    let mut guest = Guest::new();
    guest.run(1000);
    assert_eq!(guest.write(COUNTER, 7), Handled);
    assert_eq!(guest.read(COUNTER), 7);
    assert_eq!(guest.write(EVNTSEL, ON | 0xC0), Handled);
    assert_eq!(guest.read(EVNTSEL), ON | 0xC0);
    guest.run(100);
    assert_eq!(guest.read(COUNTER), 107);
    assert_eq!(guest.write(EVNTSEL, (ON | 0xC0) & !ENABLE), Handled);
    guest.run(50);
    assert_eq!(guest.read(COUNTER), 107, "frozen");
    assert_eq!(guest.write(EVNTSEL, ON | 0xC0), Handled);
    guest.run(3);
    assert_eq!(guest.read(COUNTER), 110);
    assert_eq!(guest.write(COUNTER, 0), Handled);
    guest.run(4);
    assert_eq!(guest.read(COUNTER), 4);
    assert_eq!(guest.read(MSR_BASE + MSR_RDPMC), 4);
    let shown = guest.pmu.snapshot();
    assert_eq!(shown.writes.made, 1, "enabling, disabling and writing write no hardware");
    assert_eq!((shown.writes.thresholds_set, shown.registers.lost), (0, 0));
    assert_eq!((shown.events[0].select, shown.events[0].total), (Select::general(ON | 0xC0), 107));
    assert_eq!((shown.enabled.len(), shown.enabled[0].value, shown.enabled[0].counted), (1, 4, true));
    guest.pmu.stop(&guest.mem);
    let shown = guest.pmu.snapshot();
    assert_eq!((shown.events[0].total, shown.enabled.len()), (107, 0));
}

#[test]
fn another_event_leaves_the_counter_where_it_is() {
    let mut guest = Guest::new();
    guest.write(EVNTSEL, ON | 0xC0);
    guest.run(100);
    guest.write(EVNTSEL, ON | 0xC2);
    assert_eq!(guest.read(COUNTER), 100);
    guest.run(100);
    assert_eq!(guest.read(COUNTER), 110);
    // No privilege level: enabled, and counts nothing, which is no failure.
    guest.write(EVNTSEL, ENABLE | 0xC0);
    guest.run(100);
    assert_eq!((guest.read(COUNTER), guest.pmu.snapshot().registers.lost), (110, 0));
}

#[test]
fn what_does_not_exist_faults() {
    let mut guest = Guest::new();
    // Reserved bits of AMD's are not there, rather than fault.
    for bits in [1 << 21, 1 << 32, !0xFFFF_FFFF] {
        assert_eq!(guest.write(EVNTSEL, ON | 0xC0 | bits), Handled, "{bits:#x}");
        assert_eq!(guest.read(EVNTSEL), ON | 0xC0);
    }
    for absent in [EVNTSEL + 8, EVNTSEL - 1, 0xC1, 0x186, 0x38F, 0xC001_0200] {
        assert_eq!(guest.write(absent, 0), NotHandled);
        assert_eq!(guest.pmu.rdmsr(absent), NotHandled);
    }
    for absent in [MSR_RDPMC + 4, MSR_RDPMC + 31, MSR_RDPMC_FIXED, MSR_RDPMC_FIXED + 15] {
        assert_eq!(guest.pmu.rdmsr(MSR_BASE + absent), GpFault);
    }
}

#[test]
fn the_rest_of_the_pv_range_faults() {
    let mut guest = Guest::new();
    for msr in [MSR_BASE + MSR_VECTOR + 1, MSR_BASE + MSR_RDPMC - 1, MSR_BASE + MSR_COUNT - 1] {
        assert_eq!((guest.pmu.rdmsr(msr), guest.write(msr, 0)), (GpFault, GpFault), "{msr:#x}");
    }
    assert_eq!(guest.write(MSR_BASE + MSR_RDPMC, 0), GpFault, "read only");
    assert_eq!(guest.pmu.rdmsr(MSR_BASE + MSR_COUNT), NotHandled);
}

#[test]
fn a_counter_wraps_at_48_bits_and_interrupts_if_enabled() {
    let mut guest = Guest::new();
    for (int, pmi) in [(INT, true), (0, false)] {
        guest.write(EVNTSEL + 1, 0);
        assert_eq!(guest.write(COUNTER + 1, -10i64 as u64), Handled, "bits beyond the width are ignored");
        assert_eq!(guest.read(COUNTER + 1), (1 << 48) - 10);
        guest.write(EVNTSEL + 1, ON | int | 0xC0);
        assert!(!guest.run(9));
        assert_eq!(guest.read(COUNTER + 1), (1 << 48) - 1);
        assert_eq!(guest.run(1), pmi);
        assert_eq!(guest.read(COUNTER + 1), 0);
        assert!(!guest.run(100), "once");
        assert_eq!(guest.read(COUNTER + 1), 100);
    }
    let shown = guest.pmu.snapshot();
    assert_eq!(shown.pmis, 1);
}

#[test]
fn an_overflow_before_the_interrupt_was_switched_on_is_none() {
    let mut guest = Guest::new();
    guest.write(COUNTER, (1 << 48) - 5);
    guest.write(EVNTSEL, ON | 0xC0);
    assert!(!guest.run(10));
    guest.write(EVNTSEL, ON | INT | 0xC0);
    assert!(!guest.run(10));
    assert_eq!(guest.read(COUNTER), 15);
    // Written just before the wrap while it counts: the threshold moves.
    guest.write(COUNTER, (1 << 48) - 5);
    assert!(!guest.run(4));
    assert!(guest.run(1));
}

#[test]
fn a_guest_that_rewrites_everything_at_each_switch_costs_no_host_call() {
    let mut guest = Guest::new();
    // As Linux does for counting events: interrupt on, half the counter's range to go.
    for round in 0..100 {
        guest.write(COUNTER, 1 << 47);
        guest.write(EVNTSEL, ON | INT | 0xC0);
        assert!(!guest.run(10));
        assert_eq!(guest.read(COUNTER) - (1 << 47), 10);
        guest.write(EVNTSEL, (ON | INT | 0xC0) & !ENABLE);
        guest.run(round);
    }
    let shown = guest.pmu.snapshot();
    assert_eq!((shown.writes.made, shown.writes.thresholds_set), (1, 0));
    assert_eq!(shown.events.iter().map(|event| event.total).sum::<u64>(), 1000);
}

#[test]
fn both_interfaces_count_side_by_side_and_keep_their_slots() {
    let mem = memory();
    let mut driver = Driver::new(vcpu(&ControlTable::new(), 2), &mem, 0);
    let id = driver.update_control(state_page(0), control(&[USR | 0xC0])).unwrap();
    assert_eq!(driver.resume(state_page(0), id), (0, 0));
    let run = |driver: &mut Driver<'_>, instructions| {
        let user = Executed { instructions, branches: instructions, ..Executed::default() };
        driver.pmu.host_mut().execute(&Work { user, ..Work::default() });
    };
    for (msr, value) in [(EVNTSEL, ON | 0xC0), (EVNTSEL + 1, ON | 0xC2)] {
        assert_eq!(driver.pmu.wrmsr(msr, value, &mem), Handled);
    }
    run(&mut driver, 10);
    // Both host counters are in use: a third event finds no place, at either interface.
    assert_eq!(driver.update_control(0, control(&[USR | 0xC3])), Err(-16));
    assert_eq!(driver.pmu.wrmsr(EVNTSEL + 2, ON | 0xC3, &mem), Handled);
    run(&mut driver, 10);
    assert_eq!(driver.pmu.rdmsr(COUNTER), Value(20));
    assert_eq!(driver.pmu.rdmsr(COUNTER + 1), Value(20));
    assert_eq!(driver.pmu.rdmsr(COUNTER + 2), Value(0));
    let shown = driver.pmu.snapshot();
    assert_eq!(shown.registers.lost, 1);
    assert!(shown.last_refusal.is_some());
    assert_eq!(shown.enabled.iter().map(|counter| counter.counted).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(driver.suspend(state_page(0)), 0);
    assert_eq!(state(&mem, state_page(0)).pmc[0].sum, 20);
}

#[test]
fn a_counter_given_another_event_makes_room_for_it_itself() {
    // As many host counters as there are counters in use, no more.
    let mut guest = Guest { pmu: vcpu(&ControlTable::new(), 2), mem: memory() };
    guest.write(EVNTSEL, ON | 0xC0);
    guest.write(EVNTSEL + 1, ON | 0xC2);
    guest.run(10);
    guest.write(EVNTSEL, ON | 0x01C0);
    guest.run(10);
    assert_eq!((guest.read(COUNTER), guest.read(COUNTER + 1)), (10 + 20, 2));
    assert_eq!(guest.pmu.snapshot().registers.lost, 0);
}

#[test]
fn a_counter_that_the_host_takes_stands_still_and_is_counted_as_lost() {
    let mut guest = Guest::new();
    guest.write(EVNTSEL, ON | INT | 0xC0);
    guest.run(10);
    assert_eq!(guest.read(COUNTER), 10);
    guest.pmu.host_mut().take(6);
    guest.run(10);
    guest.pmu.kicked();
    assert!(!guest.pmu.take_pmi());
    assert_eq!(guest.pmu.snapshot().registers.lost, 1);
    guest.pmu.host_mut().take(0);
    guest.write(EVNTSEL, (ON | INT | 0xC0) & !ENABLE);
    assert_eq!(guest.read(COUNTER), 10, "not less than it was seen to be");
    guest.write(EVNTSEL, ON | INT | 0xC0);
    guest.run(5);
    assert_eq!(guest.read(COUNTER), 15);
}

#[test]
fn without_emulated_registers_only_the_driver_has_counters() {
    let config = PmuConfig { pmu_registers: false, ..CONFIG };
    let mut pmu = VirtualPmu::new(config, 0, ControlTable::new(), SimPmu::new(6));
    assert_eq!(pmu.wrmsr(EVNTSEL, ON | 0xC0, &memory()), NotHandled);
    assert_eq!(pmu.rdmsr(COUNTER), NotHandled);
    assert_eq!(pmu.rdmsr(MSR_BASE + MSR_RDPMC), GpFault);
}

#[test]
fn reset_clears_the_registers_and_keeps_the_totals() {
    let mut guest = Guest::new();
    guest.write(EVNTSEL, ON | 0xC0);
    guest.run(10);
    guest.pmu.reset();
    assert_eq!((guest.read(EVNTSEL), guest.read(COUNTER)), (0, 0));
    guest.run(10);
    assert_eq!(guest.pmu.snapshot().events[0].total, 10);
}
