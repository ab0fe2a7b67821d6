//! Steps at the emulated registers.

use perfctr_abi::pv::{MSR_BASE, MSR_RDPMC, MSR_RDPMC_FIXED};
use vpmu::MsrOutcome;

use super::Harness;
use crate::hardware::processor::Access;
use crate::hardware::register_layout::Selects;

/// What starts one P4 counter after another, which the model does not know.
const CASCADE: u64 = 1 << 30 | 1 << 11;

impl Harness<'_> {
    /// The registers that the guest writes once.
    pub(super) fn set_up(&mut self, vcpu: usize) {
        for &(msr, value) in self.layout.setup {
            let outcome = self.vcpus[vcpu].driver.pmu.wrmsr(msr, value, self.mem);
            assert_eq!(outcome, MsrOutcome::Handled, "{msr:#x}");
        }
    }

    fn write(&mut self, vcpu: usize, msr: u32, value: u64) {
        // It counts itself before it does anything, unless it faults.
        if self.vcpus[vcpu].processor.clone().write(msr, value) == Access::Done {
            self.emulated(vcpu);
        }
        let on = &mut self.vcpus[vcpu];
        let outcome = on.driver.pmu.wrmsr(msr, value, self.mem);
        let wanted = match on.processor.write(msr, value) {
            Access::Done => MsrOutcome::Handled,
            Access::Faults => MsrOutcome::GpFault,
            Access::Unknown => MsrOutcome::NotHandled,
        };
        assert_eq!(outcome, wanted, "write of {value:#x} to {msr:#x}");
        if wanted != MsrOutcome::NotHandled {
            self.vcpus[vcpu].processor.touch();
        }
        self.finish_exit(vcpu);
    }

    /// Selects `event` with `bits`, as a P6 would have them.
    pub(super) fn write_select(&mut self, vcpu: usize, counter: usize, event: usize, bits: u64) {
        let layout = self.layout;
        let row = &layout.selects[counter / 16 % layout.selects.len()];
        let select = layout.compose(layout.events[event % layout.events.len()].0, bits);
        if layout.halves() {
            self.write_half(vcpu, counter % 2, select);
        } else {
            self.write(vcpu, row.at(counter % 16), select);
        }
    }

    fn write_half(&mut self, vcpu: usize, i: usize, half: u64) {
        let mut halves = [self.vcpus[vcpu].processor.select[0], self.vcpus[vcpu].processor.select[1]];
        halves[i] = half;
        self.write(vcpu, self.layout.selects[0].first, halves[1] << 16 | halves[0]);
    }

    /// One bit of a select is turned over: mostly the enable bit, or what switches a P5's counter.
    pub(super) fn toggle(&mut self, vcpu: usize, counter: usize, bit: u64) {
        let layout = self.layout;
        let i = counter % layout.counters;
        let select = self.vcpus[vcpu].processor.select[i];
        if layout.halves() {
            self.write_half(vcpu, i, select ^ layout.turned(bit));
        } else {
            self.write(vcpu, layout.selects[0].at(i), select ^ layout.turned(bit));
        }
    }

    pub(super) fn write_value(&mut self, vcpu: usize, counter: usize, row: usize, value: i64) {
        let layout = self.layout;
        let row = &layout.values[row % layout.values.len()].0;
        self.write(vcpu, row.at(counter), near_the_wrap(value, layout.width));
    }

    pub(super) fn write_fixed_control(&mut self, vcpu: usize, counter: usize, bits: u64) {
        let Some(fixed) = self.layout.fixed else { return };
        let shift = 4 * (counter % fixed.counters.count as usize);
        let control = self.vcpus[vcpu].processor.fixed_control;
        self.write(vcpu, fixed.control, control & !(0xF << shift) | (bits & 0xF) << shift);
    }

    pub(super) fn write_fixed(&mut self, vcpu: usize, counter: usize, value: i64) {
        let Some(fixed) = self.layout.fixed else { return };
        let i = (counter % fixed.counters.count as usize) as u32;
        self.write(vcpu, fixed.counters.first + i * fixed.counters.step, near_the_wrap(value, fixed.width));
    }

    pub(super) fn write_global(&mut self, vcpu: usize, register: usize, value: u64) {
        let Some(global) = self.layout.global else { return };
        let registers = [global.control, global.clear, global.set.unwrap_or(global.control), global.status];
        // Mostly counters that exist.
        let fixed = self.layout.fixed.map_or(0, |fixed| fixed.counters.count);
        let mask = ((1 << self.layout.counters) - 1) | (((1 << fixed) - 1) << 32);
        let value = if value >> 60 == 0 { value } else { value & mask };
        self.write(vcpu, registers[register % registers.len()], value);
    }

    pub(super) fn write_any(&mut self, vcpu: usize, msr: usize, value: u64) {
        let msr = self.any_register(msr);
        let cascades = self.layout.layout == Selects::Cccr && self.layout.selects[0].find(msr).is_some();
        self.write(vcpu, msr, if cascades { value & !CASCADE } else { value });
    }

    pub(super) fn read_any(&mut self, vcpu: usize, msr: usize) {
        let msr = self.any_register(msr);
        self.read(vcpu, msr);
        self.finish_exit(vcpu);
    }

    pub(super) fn rdpmc(&mut self, vcpu: usize, number: u32, fixed: bool) {
        let number = number % 16;
        let msr = MSR_BASE + number + if fixed { MSR_RDPMC_FIXED } else { MSR_RDPMC };
        let on = &mut self.vcpus[vcpu];
        let outcome = on.driver.pmu.rdmsr(msr);
        on.processor.touch();
        let tsc = self.layout.tsc.filter(|_| !fixed && number == 0).map(|_| on.processor.tsc % (1 << 40));
        if let Some(tsc) = tsc {
            assert_eq!(outcome, MsrOutcome::Value(tsc));
            return self.finish_exit(vcpu);
        }
        match (outcome, on.processor.rdpmc(number, fixed)) {
            (MsrOutcome::Value(bits), Some(register)) if !self.exact => assert!(register.may_show(bits)),
            (outcome, register) => {
                let wanted =
                    register.map_or(MsrOutcome::GpFault, |register| MsrOutcome::Value(register.bits()));
                assert_eq!(outcome, wanted, "RDPMC {number}");
            }
        }
        self.finish_exit(vcpu);
    }

    /// Reads a register and compares. Does not finish the exit.
    fn read(&mut self, vcpu: usize, msr: u32) {
        if self.vcpus[vcpu].processor.read(msr).is_ok() {
            self.emulated(vcpu);
        }
        let on = &mut self.vcpus[vcpu];
        let outcome = on.driver.pmu.rdmsr(msr);
        let wanted = match on.processor.read(msr) {
            Ok(value) => MsrOutcome::Value(value),
            Err(Access::Unknown) => MsrOutcome::NotHandled,
            Err(_) => MsrOutcome::GpFault,
        };
        if wanted != MsrOutcome::NotHandled {
            on.processor.touch();
        }
        if self.exact || !on.processor.counts(msr) {
            assert_eq!(outcome, wanted, "read of {msr:#x}");
        } else if let (MsrOutcome::Value(bits), Some(register)) = (outcome, on.processor.register(msr)) {
            assert!(register.may_show(bits), "{msr:#x}: {bits:#x} of {register:x?}");
        }
    }

    pub(super) fn check_registers(&mut self, vcpu: usize) {
        let layout = self.layout;
        for row in layout.selects.iter().chain(layout.values.iter().map(|(row, _)| row)) {
            (0..row.count).for_each(|i| self.read(vcpu, row.first + i * row.step));
        }
        if let Some(fixed) = layout.fixed {
            self.read(vcpu, fixed.control);
            (0..fixed.counters.count)
                .for_each(|i| self.read(vcpu, fixed.counters.first + i * fixed.counters.step));
        }
        if let Some(global) = layout.global {
            self.read(vcpu, global.control);
            self.read(vcpu, global.status);
        }
        // The status was looked at, and with it every counter.
        self.finish_exit(vcpu);
    }

    /// An interrupt was given: its cause can be seen.
    pub(super) fn check_status(&mut self, vcpu: usize) {
        if let Some(global) = self.layout.global {
            self.read(vcpu, global.status);
        }
    }

    /// One of the layout's registers, or a neighbour of one.
    fn any_register(&self, n: usize) -> u32 {
        let layout = self.layout;
        let rows = layout.selects.len() + layout.values.len();
        let (which, i) = (n % (rows + 3), (n / 64) as u32);
        let row = layout.selects.iter().chain(layout.values.iter().map(|(row, _)| row)).nth(which);
        match (row, layout.fixed, layout.global) {
            (Some(row), ..) => row.first + i % (row.count * row.step + 1),
            (None, Some(fixed), _) if which == rows => fixed.counters.first + i % (fixed.counters.count + 1),
            (None, Some(fixed), _) if which == rows + 1 => fixed.control,
            (None, _, Some(global)) => global.control - 1 + i % 5,
            (None, ..) => layout.values[0].0.first,
        }
    }
}

/// Small numbers as they are; negative ones count from the wrap.
fn near_the_wrap(value: i64, width: u32) -> u64 {
    if value < 0 && value > -(1 << 33) {
        ((1u128 << width) as i128 + i128::from(value)) as u64
    } else {
        value as u64
    }
}
