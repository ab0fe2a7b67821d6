//! The emulated PMU where families differ from the K8: register numbers, reserved bits, global registers, P5 and P4.

mod guest;

use guest::{CONFIG, memory};
use perfctr_abi::pv::{MSR_BASE, MSR_RDPMC, MSR_RDPMC_FIXED};
use vm_memory::GuestMemoryMmap;
use vpmu::MsrOutcome::{self, GpFault, Handled, NotHandled, Value};
use vpmu::sim::{Executed, SimPmu, Work};
use vpmu::{ControlTable, Model, PmuConfig, VirtualPmu};

struct Guest {
    pmu: VirtualPmu<SimPmu>,
    mem: GuestMemoryMmap,
}

impl Guest {
    fn new(model: Model) -> Self {
        let config = PmuConfig { model, ..CONFIG };
        Self { pmu: VirtualPmu::new(config, 0, ControlTable::new(), SimPmu::new(6)), mem: memory() }
    }

    fn write(&mut self, msr: u32, value: u64) -> MsrOutcome {
        self.pmu.wrmsr(msr, value, &self.mem)
    }

    /// A write that does not fault.
    #[track_caller]
    fn set(&mut self, msr: u32, value: u64) {
        assert_eq!(self.write(msr, value), Handled, "{msr:#x} = {value:#x}");
    }

    #[track_caller]
    fn get(&mut self, msr: u32) -> u64 {
        match self.pmu.rdmsr(msr) {
            Value(value) => value,
            other => panic!("{msr:#x}: {other:?}"),
        }
    }

    fn rdpmc(&mut self, number: u32) -> MsrOutcome {
        self.pmu.rdmsr(MSR_BASE + MSR_RDPMC + number)
    }

    /// Execute instructions in user mode; a tenth of them are branches, cycles are twice as many. Gives whether a PMI is
    /// due.
    fn run(&mut self, instructions: u64) -> bool {
        let user = Executed {
            instructions,
            branches: instructions / 10,
            cycles: 2 * instructions,
            ..Executed::default()
        };
        self.pmu.host_mut().execute(&Work { user, tsc: instructions, ..Work::default() });
        if self.pmu.host_mut().passed_threshold() {
            self.pmu.kicked();
        }
        self.pmu.take_pmi()
    }

    /// Execute instructions in kernel mode.
    fn run_kernel(&mut self, instructions: u64) {
        let kernel = Executed { instructions, ..Executed::default() };
        self.pmu.host_mut().execute(&Work { kernel, ..Work::default() });
    }
}

/// As many host counters as are in use, no more: what counts another event than before lets go of the old one first.
#[test]
fn counters_given_another_event_make_room_for_it_themselves() {
    let two = |model| {
        let config = PmuConfig { model, ..CONFIG };
        let pmu = VirtualPmu::new(config, 0, ControlTable::new(), SimPmu::new(2));
        Guest { pmu, mem: memory() }
    };
    let mut p5 = two(Model::P5Mmx);
    p5.set(0x11, 0x96 << 16 | 0x92);
    p5.run(10);
    p5.set(0x11, 0x96 << 16 | 0xB0);
    p5.run(10);
    assert_eq!((p5.get(0x12), p5.get(0x13)), (1 + 20, 20), "branches then cycles, instructions");

    let mut p4 = two(Model::P4);
    let (cycles, instructions, branches) =
        (0x13 << 25 | 1 << 9 | 4, 2 << 25 | 1 << 9 | 4, 6 << 25 | 0xF << 9 | 4);
    for (escr, value) in [(0x3A2, cycles), (0x3B8, instructions), (0x3CC, branches)] {
        p4.set(escr, value);
    }
    let cccr = |selected: u64| selected << 13 | 3 << 16 | 1 << 12;
    p4.set(0x360, cccr(6));
    p4.set(0x36C, cccr(4));
    p4.run(10);
    p4.set(0x36C, cccr(5));
    p4.run(10);
    assert_eq!((p4.get(0x300), p4.get(0x30C)), (40, 10 + 1), "cycles, instructions then branches");
}

mod p6 {
    use super::*;

    const EVNTSEL: u32 = 0x186;
    const COUNTER: u32 = 0xC1;
    const USR: u64 = 1 << 16;
    const INT: u64 = 1 << 20;
    const ENABLE: u64 = 1 << 22;

    #[test]
    fn one_enable_bit_for_both_counters() {
        let mut guest = Guest::new(Model::PentiumM);
        guest.set(EVNTSEL + 1, USR | 0xC4);
        guest.run(100);
        assert_eq!(guest.get(COUNTER + 1), 0);
        guest.set(EVNTSEL, ENABLE | USR | 0xC0);
        guest.run(100);
        assert_eq!((guest.get(COUNTER), guest.get(COUNTER + 1)), (100, 10));
        guest.set(EVNTSEL, USR | 0xC0);
        guest.run(100);
        assert_eq!((guest.get(COUNTER), guest.get(COUNTER + 1)), (100, 10));
        for bad in [1 << 21, 1 << 32] {
            assert_eq!(guest.write(EVNTSEL, bad), GpFault);
        }
        assert_eq!(guest.write(EVNTSEL + 1, ENABLE), GpFault);
    }

    #[test]
    fn a_write_extends_bit_31_to_40_bits() {
        let mut guest = Guest::new(Model::P6);
        guest.set(COUNTER, 0x8000_0000);
        assert_eq!(guest.get(COUNTER), 0xFF_8000_0000);
        guest.set(COUNTER, 0xAB_7FFF_FFFF);
        assert_eq!(guest.get(COUNTER), 0x7FFF_FFFF);
        guest.set(COUNTER, -5i64 as u64);
        guest.set(EVNTSEL, ENABLE | INT | USR | 0xC0);
        assert!(!guest.run(4));
        assert!(guest.run(1));
        assert_eq!(guest.get(COUNTER), 0);
    }
}

mod c3 {
    use super::*;

    #[test]
    fn counter_1_runs_always_and_counter_0_is_the_tsc() {
        let mut guest = Guest::new(Model::C3);
        guest.set(0x187, 0xFFFF_FE00 | 0xC0);
        assert_eq!(guest.get(0x187), 0xC0);
        guest.run(100);
        guest.run_kernel(10);
        // Two RDMSRs are counted, and the last one sees itself.
        assert_eq!((guest.get(0xC2), guest.rdpmc(1)), (112, Value(112)));
        assert_eq!((guest.get(0xC1), guest.rdpmc(0)), (100, Value(100)));
        assert_eq!(guest.get(0x186) & 0x1FF, 0x79, "as it counts, and read only");
        assert_eq!((guest.write(0x186, 0xC0), guest.write(0xC1, 0)), (GpFault, GpFault));
        assert_eq!(guest.rdpmc(2), GpFault);
    }

    /// perfctr writes 0x00070079 to EVNTSEL1 when it is done, because that is what it found there after boot.
    #[test]
    fn the_default_after_boot_is_counter_1s() {
        let mut guest = Guest::new(Model::C3);
        for _ in 0..2 {
            assert_eq!(guest.get(0x187), 0x0007_0079);
            let before = guest.get(0xC2);
            guest.run(100);
            assert_eq!((guest.get(0xC2) - before, guest.get(0x187)), (200, 0x0007_0079), "internal clocks");
            guest.set(0x187, 0xC0);
            guest.pmu.reset();
        }
        assert_eq!(guest.pmu.snapshot().registers.lost, 0);
    }
}

mod amd {
    use super::*;

    const ON: u64 = 0x0041_0000;

    #[test]
    fn the_first_four_pairs_have_two_numbers_each() {
        let mut guest = Guest::new(Model::AmdCore);
        guest.set(0xC001_0206, ON | 0xC0);
        assert_eq!(guest.get(0xC001_0003), ON | 0xC0);
        guest.run(10);
        assert_eq!((guest.get(0xC001_0207), guest.get(0xC001_0007)), (10, 10));
        guest.set(0xC001_0007, 1000);
        guest.set(0xC001_020A, ON | 0xC2);
        guest.run(10);
        assert_eq!((guest.rdpmc(3), guest.rdpmc(5)), (Value(1010), Value(1)));
        assert_eq!(guest.pmu.rdmsr(0xC000_0301), NotHandled);
        // Event bits 8 to 11 are there, GuestOnly and HostOnly are not.
        guest.set(0xC001_0200, 0b11 << 40 | 1 << 32 | ON | 0xC0);
        assert_eq!(guest.get(0xC001_0200), 1 << 32 | ON | 0xC0);
    }

    #[test]
    fn global_registers_ignore_what_they_do_not_have() {
        let mut guest = Guest::new(Model::AmdV2);
        let [status, control, clear, set] = [0xC000_0300, 0xC000_0301, 0xC000_0302, 0xC000_0303];
        assert_eq!(guest.get(control), 0x3F, "after reset");
        guest.set(control, u64::MAX);
        assert_eq!(guest.get(control), 0x3F);
        guest.set(0xC001_0201, -5i64 as u64);
        guest.set(0xC001_0200, 1 << 20 | ON | 0xC0);
        guest.set(control, 0);
        assert!(!guest.run(10));
        guest.set(control, 1);
        assert!(guest.run(10));
        assert_eq!((guest.get(status), guest.get(0xC001_0201)), (1, 5));
        guest.set(status, 0);
        assert_eq!(guest.get(status), 1, "read only");
        guest.set(set, u64::MAX);
        assert_eq!(guest.get(status), 0x3F);
        // As Linux clears them, frozen branch records included.
        guest.set(clear, 1 << 58 | 0x3F);
        assert_eq!((guest.get(status), guest.get(clear)), (0, 0));
    }
}

mod intel {
    use super::*;

    const ON: u64 = 0x0041_0000;
    const FIXED: [u32; 3] = [0x309, 0x30A, 0x30B];
    const CONTROL: u32 = 0x38F;
    const STATUS: u32 = 0x38E;
    const CLEAR: u32 = 0x390;

    /// Which of the version's registers exist.
    #[test]
    fn each_version_has_its_registers() {
        let versions = [Model::IntelV1, Model::IntelV2, Model::IntelV3, Model::IntelV4, Model::IntelV5];
        for (register, exists) in [
            (0xC2, [true; 5]),
            (0xC3, [false, false, true, true, true]),
            (0x18D, [false, false, false, false, true]),
            (0x4C1, [false, false, true, true, true]),
            (0x345, [false, false, true, true, true]),
            (0x30B, [false, true, true, true, true]),
            (0x30C, [false; 5]),
            (0x38D, [false, true, true, true, true]),
            (0x390, [false, true, true, true, true]),
            (0x391, [false, false, false, true, true]),
            (0x392, [false, false, false, true, true]),
        ] {
            for (model, exists) in versions.into_iter().zip(exists) {
                let outcome = Guest::new(model).pmu.rdmsr(register);
                assert_eq!(matches!(outcome, Value(_)), exists, "{model}: {register:#x} {outcome:?}");
            }
        }
    }

    #[test]
    fn reserved_bits_fault() {
        let mut guest = Guest::new(Model::IntelV2);
        for (register, bad) in [
            (0x186, 1 << 21),
            (0x186, 1 << 32),
            (0x38D, 1 << 2),
            (0x38D, 1 << 12),
            (CONTROL, 1 << 2),
            (CONTROL, 1 << 35),
            (CLEAR, 1 << 61),
            (STATUS, 0),
            (0x309, 1 << 40),
        ] {
            assert_eq!(guest.write(register, bad), GpFault, "{register:#x} {bad:#x}");
        }
        let mut guest = Guest::new(Model::IntelV4);
        for (register, value, outcome) in [
            // AnyThread may be set.
            (0x186, 1 << 21, Handled),
            (0x38D, 1 << 2, Handled),
            (CLEAR, 0b111111 << 58 | 1 << 55, Handled),
            (0x391, 1 << 62, GpFault),
            (0x392, 0, GpFault),
            (0x345, 0, GpFault),
            (0x345, 1 << 13, Handled),
        ] {
            assert_eq!(guest.write(register, value), outcome, "{register:#x} {value:#x}");
        }
        assert_eq!(Guest::new(Model::IntelV5).write(0x186, 1 << 21), GpFault, "AnyThread is gone");
    }

    #[test]
    fn fixed_counters_count_when_both_registers_enable_them() {
        let mut guest = Guest::new(Model::IntelV2);
        assert_eq!(guest.get(CONTROL), 0b11, "general ones only, after reset");
        guest.set(0x38D, 0x02A);
        guest.run(10);
        assert_eq!(FIXED.map(|msr| guest.get(msr)), [0, 0, 0]);
        guest.set(CONTROL, 7 << 32);
        guest.set(FIXED[0], (1 << 40) - 10);
        assert!(guest.run(10));
        assert_eq!(FIXED.map(|msr| guest.get(msr)), [0, 20, 0]);
        assert_eq!(guest.get(STATUS), 1 << 32);
        guest.set(CLEAR, 1 << 32 | 1 << 62);
        assert_eq!(guest.get(STATUS), 0);
        assert_eq!(guest.pmu.rdmsr(MSR_BASE + MSR_RDPMC_FIXED + 1), Value(20));
        assert_eq!(guest.pmu.rdmsr(MSR_BASE + MSR_RDPMC_FIXED + 3), GpFault);
    }

    #[test]
    fn full_width_addresses_take_every_bit() {
        let mut guest = Guest::new(Model::IntelV3);
        guest.set(0x4C1, 0x1234_5678_9ABC);
        assert_eq!(guest.get(0xC1), 0x1234_5678_9ABC);
        guest.set(0xC1, 0x8000_0000);
        assert_eq!(guest.get(0x4C1), 0xFFFF_8000_0000);
        assert_eq!(guest.write(0x4C1, 1 << 48), GpFault);
    }

    #[test]
    fn status_can_be_set_and_use_is_reported() {
        let mut guest = Guest::new(Model::IntelV4);
        guest.set(0x391, 0b10);
        assert_eq!(guest.get(STATUS), 0b10);
        guest.set(0x187, 1 << 20 | ON | 0xC0);
        guest.set(0x38D, 0x010);
        assert_eq!(guest.get(0x392), 1 << 63 | 1 << 33 | 0b10);
    }
}

mod p5 {
    use super::*;

    const CESR: u32 = 0x11;

    #[test]
    fn two_counters_share_cesr() {
        let mut guest = Guest::new(Model::P5Mmx);
        // Instructions in user mode; branches in both modes.
        guest.set(CESR, (0xD2 << 16) | 0x96);
        assert_eq!(guest.get(CESR), 0x00D2_0096);
        guest.run(100);
        guest.run_kernel(50);
        assert_eq!((guest.get(0x12), guest.get(0x13)), (100, 10));
        // One is stopped, the other goes on.
        guest.set(CESR, 0xD2 << 16);
        guest.run(100);
        assert_eq!((guest.get(0x12), guest.get(0x13)), (100, 20));
        assert_eq!((guest.rdpmc(0), guest.rdpmc(1), guest.rdpmc(2)), (Value(100), Value(20), GpFault));
        assert_eq!(guest.pmu.snapshot().registers.lost, 0);
    }

    #[test]
    fn counters_are_written_in_full_and_wrap_without_an_interrupt() {
        let mut guest = Guest::new(Model::P5);
        guest.set(0x13, 0xFF_FFFF_FFFF_FFFF);
        assert_eq!(guest.get(0x13), 0xFF_FFFF_FFFF);
        guest.set(CESR, 0x96 << 16);
        assert!(!guest.run(3));
        assert_eq!(guest.get(0x13), 2);
        assert_eq!(guest.rdpmc(1), GpFault, "the first Pentium has no RDPMC");
    }

    #[test]
    fn reserved_bits_fault() {
        for (model, valid) in
            [(Model::P5, 0x03FF_03FF), (Model::CyrixMii, 0x07FF_07FF), (Model::WinChip2, 0x00FF_00FF)]
        {
            let mut guest = Guest::new(model);
            for bit in 0..64 {
                let outcome = if valid & 1u64 << bit != 0 { Handled } else { GpFault };
                assert_eq!(guest.write(CESR, 1 << bit), outcome, "{model}, bit {bit}");
            }
        }
    }

    #[test]
    fn the_pin_changes_nothing_and_durations_are_not_counted() {
        let mut guest = Guest::new(Model::P5);
        guest.set(CESR, 0x96);
        guest.run(10);
        guest.set(CESR, 1 << 9 | 0x96);
        guest.run(10);
        assert_eq!(guest.get(0x12), 20);
        assert_eq!(guest.pmu.snapshot().writes.made, 1);
        guest.set(CESR, 1 << 8 | 0x96);
        guest.run(10);
        assert_eq!((guest.get(0x12), guest.pmu.snapshot().registers.lost), (20, 1));
    }

    #[test]
    fn a_winchip_cannot_be_stopped() {
        let mut guest = Guest::new(Model::WinChipC6);
        guest.set(CESR, 0x02);
        guest.run(10);
        guest.run_kernel(5);
        // RDMSR sees itself counted.
        assert_eq!(guest.get(0x12), 15 + 1);
        // The other counts event 0, clocks.
        assert_eq!(guest.get(0x13), 20);
    }
}

mod p4 {
    use super::*;

    const ANY: u64 = 3 << 16;
    const ENABLE: u64 = 1 << 12;
    const PMI: u64 = 1 << 26;
    const CASCADE: u64 = 1 << 30;
    const OVF: u64 = 1 << 31;
    /// instr_retired NBOGUSNTAG, branch_retired of all kinds, global_power_events RUNNING; user mode.
    const INSTRUCTIONS: u64 = 2 << 25 | 1 << 9 | 1 << 2;
    const BRANCHES: u64 = 6 << 25 | 0xF << 9 | 1 << 2;
    const CYCLES: u64 = 0x13 << 25 | 1 << 9 | 1 << 2;

    fn cccr(counter: u32) -> u32 {
        0x360 + counter
    }

    fn counter(counter: u32) -> u32 {
        0x300 + counter
    }

    /// With the ESCRs above: CRU_ESCR0 to 3, FSB_ESCR0 and 1.
    fn guest() -> Guest {
        let mut guest = Guest::new(Model::P4M2);
        for (escr, value) in [
            (0x3B8, INSTRUCTIONS),
            (0x3B9, INSTRUCTIONS),
            (0x3CC, BRANCHES),
            (0x3CD, BRANCHES),
            (0x3A2, CYCLES),
            (0x3A3, CYCLES),
        ] {
            guest.set(escr, value);
        }
        guest
    }

    const CRU01: u64 = 4 << 13;
    const CRU23: u64 = 5 << 13;
    const FSB: u64 = 6 << 13;

    #[test]
    fn cccr_and_escr_together_say_what_is_counted() {
        let mut guest = guest();
        guest.set(cccr(12), ANY | CRU01 | ENABLE);
        guest.set(cccr(13), ANY | CRU23 | ENABLE);
        guest.set(cccr(0), ANY | FSB | ENABLE);
        guest.run(100);
        guest.run_kernel(10);
        assert_eq!([12, 13, 0].map(|i| guest.get(counter(i))), [100, 10, 200]);
        // The ESCR changes under a running counter.
        guest.set(0x3B8, INSTRUCTIONS | 1 << 3);
        guest.run_kernel(10);
        // It counts kernel mode from there on: not the WRMSR, but each RDMSR, and the WRMSR that stops it.
        assert_eq!([12, 13, 0].map(|i| guest.get(counter(i))), [111, 10, 200]);
        guest.set(cccr(12), ANY | CRU01);
        guest.run(100);
        assert_eq!((guest.rdpmc(12), guest.rdpmc(13), guest.rdpmc(18)), (Value(114), Value(20), GpFault));
        assert_eq!(guest.pmu.snapshot().registers.lost, 0);
    }

    #[test]
    fn overflow_sets_the_flag_and_interrupts() {
        for (pmi, due) in [(PMI, true), (0, false)] {
            let mut guest = guest();
            guest.set(counter(12), (1 << 40) - 10);
            guest.set(cccr(12), ANY | CRU01 | ENABLE | pmi);
            assert!(!guest.run(9));
            assert_eq!(guest.get(cccr(12)) & OVF, 0);
            assert_eq!(guest.run(1), due);
            assert_eq!(guest.get(cccr(12)), OVF | ANY | CRU01 | ENABLE | pmi);
            guest.set(cccr(12), ANY | CRU01 | ENABLE | pmi);
            assert!(!guest.run(5));
            assert_eq!((guest.get(cccr(12)) & OVF, guest.get(counter(12))), (0, 5));
        }
    }

    #[test]
    fn a_cascaded_counter_starts_at_its_partners_overflow() {
        let mut guest = guest();
        // 14 follows 12.
        guest.set(cccr(14), ANY | CRU23 | CASCADE);
        guest.set(counter(12), (1 << 40) - 100);
        guest.set(cccr(12), ANY | CRU01 | ENABLE);
        guest.run(100);
        assert_eq!((guest.get(counter(12)), guest.get(counter(14))), (0, 0));
        assert_eq!(guest.get(cccr(12)) & OVF, OVF);
        guest.run(100);
        assert_eq!((guest.get(counter(12)), guest.get(counter(14))), (100, 10));
        assert_eq!(guest.pmu.snapshot().pmis, 0);
        // Written anew, it waits again.
        guest.set(cccr(14), ANY | CRU23 | CASCADE);
        guest.run(100);
        assert_eq!(guest.get(counter(14)), 10);
    }

    #[test]
    fn extended_cascading_follows_the_last_two() {
        let mut guest = guest();
        // 12 follows 16.
        guest.set(cccr(12), ANY | CRU23 | 1 << 11);
        guest.set(counter(16), (1 << 40) - 100);
        guest.set(cccr(16), ANY | CRU01 | ENABLE);
        guest.run(100);
        guest.run(100);
        assert_eq!(guest.get(counter(12)), 10);
        assert_eq!(Guest::new(Model::P4).write(cccr(12), 1 << 11), GpFault, "model 2 and later only");
    }

    #[test]
    fn registers_that_exist_and_their_reserved_bits() {
        let mut guest = guest();
        for bit in [0, 10, 28, 29, 32] {
            assert_eq!(guest.write(cccr(3), 1 << bit), GpFault, "CCCR bit {bit}");
        }
        assert_eq!((guest.write(0x3A0, 1 << 31), guest.write(0x3A0, 1 << 32)), (GpFault, GpFault));
        for absent in [0x2FF, 0x312, 0x35F, 0x372, 0x39F, 0x3BF, 0x3C6, 0x3CE, 0x3DF, 0x3E2, 0x3F0] {
            assert_eq!(guest.pmu.rdmsr(absent), NotHandled, "{absent:#x}");
        }
        assert_eq!(Guest::new(Model::P4M3).pmu.rdmsr(0x3BA), NotHandled);
        guest.set(0x3BA, 0x7FFF_FFFF);
        guest.set(0x3F1, 0x0100_0001);
        guest.set(0x3F2, 1);
        assert_eq!((guest.get(0x3BA), guest.get(0x3F1), guest.get(0x3F2)), (0x7FFF_FFFF, 0x0100_0001, 1));
        assert_eq!(guest.write(0x3F1, 1 << 25), GpFault, "no PEBS");
    }

    #[test]
    fn what_has_no_equivalent_is_not_counted_and_said_so() {
        let mut guest = guest();
        for modifier in [1 << 18, 1 << 24, 1 << 25] {
            guest.set(cccr(12), ANY | CRU01 | ENABLE | modifier);
            guest.run(100);
            assert_eq!(guest.get(counter(12)), 0);
        }
        assert_eq!(guest.pmu.snapshot().registers.lost, 3);
        // Active while no logical processor is: never.
        guest.set(cccr(12), CRU01 | ENABLE);
        guest.run(100);
        assert_eq!((guest.get(counter(12)), guest.pmu.snapshot().registers.lost), (0, 3));
    }

    /// PEBS_ENABLE tags what is replayed: which instructions are untagged then nobody knows here.
    #[test]
    fn beside_replay_tagging_nothing_is_counted() {
        let mut guest = guest();
        guest.set(cccr(12), ANY | CRU01 | ENABLE);
        guest.run(100);
        guest.set(0x3F2, 1);
        guest.set(0x3F1, 1 << 24 | 1);
        guest.run(100);
        assert_eq!((guest.get(counter(12)), guest.pmu.snapshot().registers.lost), (100, 1));
        guest.set(0x3F1, 0);
        guest.run(100);
        assert_eq!((guest.get(counter(12)), guest.pmu.snapshot().registers.lost), (200, 1));
    }

    /// The rules are perfctr's, and take what nothing counts; then it is refused.
    #[test]
    fn a_control_with_modifiers_is_refused_for_want_of_an_event() {
        use perfctr_abi::layout::CpuControl;

        use crate::guest::{Driver, state_page};

        const EOPNOTSUPP: i32 = -95;
        let mem = memory();
        let config = PmuConfig { model: Model::P4M2, ..CONFIG };
        let pmu = VirtualPmu::new(config, 0, ControlTable::new(), SimPmu::new(6));
        let mut driver = Driver::new(pmu, &mem, 0);
        let mut plain = CpuControl { nractrs: 1, ..CpuControl::default() };
        (plain.pmc_map[0], plain.evntsel[0]) = (12, (ANY | CRU01 | ENABLE) as u32);
        plain.p4.escr[0] = INSTRUCTIONS as u32;
        assert!(driver.update_control(state_page(0), plain).is_ok());
        let with = |cccr: u64| {
            let mut control = plain;
            control.evntsel[0] = cccr as u32;
            control
        };
        let cascading = [CASCADE, 1 << 11].map(|bit| with(ANY | CRU01 | bit));
        let modified = [1 << 18, 1 << 24, 1 << 25].map(|bit| with(ANY | CRU01 | ENABLE | bit));
        let mut replay = plain;
        (replay.p4.pebs_enable, replay.p4.pebs_matrix_vert) = (1 << 24 | 1, 1);
        for control in cascading.into_iter().chain(modified).chain([replay]) {
            assert!(Model::P4M2.check(&control).is_ok());
            assert_eq!(driver.update_control(state_page(0), control), Err(EOPNOTSUPP), "{control:x?}");
            assert!(driver.pmu.snapshot().last_refusal.unwrap().contains("cannot count"));
        }
    }
}

/// What is counted does not depend on the way by which it is asked for: P6's enable bit, by registers and by a control.
mod both_interfaces {
    use perfctr_abi::layout::CpuControl;

    use super::*;
    use crate::guest::{Driver, state, state_page};

    const ENABLE: u32 = 1 << 22;
    const EINVAL: i32 = -22;

    /// What counters 0 and 1 count of 1000 instructions by registers; selects that may not be are `None`.
    fn by_registers(model: Model, selects: [u32; 2]) -> Option<[u64; 2]> {
        let mut guest = Guest::new(model);
        for (msr, select) in [0x187, 0x186].into_iter().zip(selects.into_iter().rev()) {
            if guest.write(msr, select.into()) != Handled {
                return None;
            }
        }
        guest.run(1000);
        Some([guest.get(0xC1), guest.get(0xC2)])
    }

    /// The same by a control of those counters that have a select; an error is the control's.
    fn by_control(model: Model, selects: [u32; 2]) -> Result<[u64; 2], i32> {
        let mut control = CpuControl::default();
        for (map, select) in (0..).zip(selects).filter(|(_, select)| *select != 0) {
            let i = control.nractrs as usize;
            (control.pmc_map[i], control.evntsel[i]) = (map, select);
            control.nractrs += 1;
        }
        let mem = memory();
        let config = PmuConfig { model, ..CONFIG };
        let pmu = VirtualPmu::new(config, 0, ControlTable::new(), SimPmu::new(6));
        let mut driver = Driver::new(pmu, &mem, 0);
        let id = driver.update_control(state_page(0), control)?;
        assert_eq!(driver.resume(state_page(0), id), (0, 0));
        let user = Executed { instructions: 1000, branches: 100, ..Executed::default() };
        driver.pmu.host_mut().execute(&Work { user, ..Work::default() });
        assert_eq!(driver.suspend(state_page(0)), 0);
        let page = state(&mem, state_page(0));
        let mut counts = [0; 2];
        for i in 0..control.nractrs as usize {
            counts[control.pmc_map[i] as usize] = page.pmc[i].sum;
        }
        Ok(counts)
    }

    #[test]
    fn p6s_enable_bit_is_that_of_both_counters() {
        let (instructions, branches) = (0x0001_00C0, 0x0001_00C4);
        for model in [Model::P6, Model::PentiumII, Model::PentiumIII, Model::PentiumM] {
            // Registers may be set one after another, so what cannot count stands still; a control is refused for it.
            for (selects, registers, control) in [
                ([ENABLE | instructions, branches], Some([1000, 100]), Ok([1000, 100])),
                ([ENABLE | instructions, 0], Some([1000, 0]), Ok([1000, 0])),
                ([0, branches], Some([0, 0]), Err(EINVAL)),
                ([instructions, branches], Some([0, 0]), Err(EINVAL)),
                ([instructions, 0], Some([0, 0]), Err(EINVAL)),
                ([ENABLE | instructions, ENABLE | branches], None, Err(-1)),
                ([0, ENABLE | branches], None, Err(-1)),
            ] {
                assert_eq!(by_registers(model, selects), registers, "{model}: {selects:x?}");
                assert_eq!(by_control(model, selects), control, "{model}: {selects:x?}");
            }
        }
    }
}
