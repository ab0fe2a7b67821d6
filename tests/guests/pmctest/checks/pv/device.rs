//! The paravirtual interface's registers through /dev/cpu/0/msr.

use std::arch::x86_64::__cpuid;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use perfctr_abi::pv::{LEAF_INTERFACE, LEAF_SIGNATURE, SIGNATURE, VERSION};
use rustix::thread::{CpuSet, sched_setaffinity};

const DEVICE: &str = "/dev/cpu/0/msr";

/// Pages are registered by CPU, so everything happens on one.
pub(super) fn pin_to_cpu_0() -> Result<()> {
    let mut cpu = CpuSet::new();
    cpu.set(0);
    sched_setaffinity(None, &cpu).context("cannot move to CPU 0")
}

/// The two registers of CPU 0.
pub(super) struct PvRegisters {
    device: File,
    first: u32,
}

impl PvRegisters {
    pub(super) fn open() -> Result<Self> {
        let signature = __cpuid(LEAF_SIGNATURE);
        let text = [signature.ebx, signature.ecx, signature.edx].map(u32::to_le_bytes).concat();
        ensure!(
            text == SIGNATURE,
            "CPUID {LEAF_SIGNATURE:#x} says {text:?}: this guest has no paravirtual interface"
        );
        let interface = __cpuid(LEAF_INTERFACE);
        ensure!(
            interface.eax == VERSION,
            "the paravirtual interface has version {}, this check knows {VERSION}",
            interface.eax
        );
        let device = OpenOptions::new().read(true).write(true).open(DEVICE).with_context(|| {
            format!(
                "cannot open {DEVICE}; it needs root, the module msr (modprobe msr), and a devtmpfs on /dev"
            )
        })?;
        Ok(Self { device, first: interface.ebx })
    }

    /// An error (EIO) if the read raised #GP.
    pub(super) fn read(&self, register: u32) -> io::Result<u64> {
        let mut value = [0; 8];
        self.device.read_exact_at(&mut value, u64::from(self.first + register))?;
        Ok(u64::from_le_bytes(value))
    }

    /// An error (EIO) if the write raised #GP.
    pub(super) fn write(&self, register: u32, value: u64) -> io::Result<()> {
        self.device.write_all_at(&value.to_le_bytes(), u64::from(self.first + register))
    }
}
