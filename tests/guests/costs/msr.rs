//! What a guest's perf does to the registers of an AMD PMU (AMD64 Architecture Programmer's Manual volume 2, 13.2.1), one
//! at a time, through the `msr` device. The device's own cost is in all of them, and `msr/nothing` is that alone: a register that
//! no hypervisor looks at.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};

use crate::cpu::on_first_cpu;
use crate::operation::{Operation, Run};

const PERF_CTL0: u64 = 0xC001_0200;
const PERF_CTR0: u64 = 0xC001_0201;
/// Of the program that runs; KVM lets guests have it.
const KERNEL_GS_BASE: u64 = 0xC000_0102;
/// Instructions in user mode, and branches.
const INSTRUCTIONS: u64 = 0x0041_00C0;
const BRANCHES: u64 = 0x0041_00C2;
const ENABLED: u64 = 1 << 22;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "msr/nothing", length: 400, prepare: || reads(KERNEL_GS_BASE) },
        Operation { name: "msr/evntsel-same", length: 400, prepare: || writes(PERF_CTL0, [INSTRUCTIONS; 2]) },
        Operation {
            name: "msr/evntsel-toggle",
            length: 400,
            prepare: || writes(PERF_CTL0, [INSTRUCTIONS & !ENABLED, INSTRUCTIONS]),
        },
        Operation {
            name: "msr/evntsel-other",
            length: 400,
            prepare: || writes(PERF_CTL0, [BRANCHES, INSTRUCTIONS]),
        },
        Operation { name: "msr/counter-write", length: 400, prepare: || writes(PERF_CTR0, [0, 1 << 20]) },
        Operation { name: "msr/counter-read", length: 400, prepare: || reads(PERF_CTR0) },
    ]
}

/// The registers of this thread's processor; the first counter runs.
struct Registers(File);

impl Registers {
    fn open() -> Result<Self> {
        on_first_cpu()?;
        let file = File::options().read(true).write(true).open("/dev/cpu/0/msr");
        let registers = Self(file.context("/dev/cpu/0/msr")?);
        registers.read(PERF_CTR0).context("no registers of AMD's PMU")?;
        registers.write(PERF_CTL0, INSTRUCTIONS)?;
        ensure!(registers.read(PERF_CTL0)? == INSTRUCTIONS, "the registers of the PMU do nothing");
        Ok(registers)
    }

    fn read(&self, register: u64) -> Result<u64> {
        let mut value = [0; 8];
        self.0.read_exact_at(&mut value, register)?;
        Ok(u64::from_le_bytes(value))
    }

    fn write(&self, register: u64, value: u64) -> Result<()> {
        Ok(self.0.write_all_at(&value.to_le_bytes(), register)?)
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // The machine ends soon in any case.
        let _ = self.write(PERF_CTL0, 0);
    }
}

/// One value after the other, in turns.
fn writes(register: u64, values: [u64; 2]) -> Result<Run> {
    let registers = Registers::open()?;
    Ok(Box::new(move |n| {
        for i in 0..n {
            registers.write(register, values[i as usize % 2])?;
        }
        Ok(())
    }))
}

fn reads(register: u64) -> Result<Run> {
    let registers = Registers::open()?;
    Ok(Box::new(move |n| {
        for _ in 0..n {
            registers.read(register)?;
        }
        Ok(())
    }))
}
