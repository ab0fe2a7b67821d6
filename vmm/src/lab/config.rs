//! What the lab machine is made of.

use std::path::PathBuf;
use std::time::Duration;

/// Number of session ports, and so of callers at the same time.
pub const PORTS: usize = 8;

/// How the lab machine is made.
#[derive(Clone, Debug)]
pub struct LabConfig {
    /// The QEMU binary.
    pub qemu: PathBuf,
    /// Folders with QEMU's firmware.
    pub firmware: Vec<PathBuf>,
    /// The host kernel of the lab.
    pub kernel: PathBuf,
    /// Its initramfs, with perfvisor's init.
    pub initrd: PathBuf,
    /// Sockets, locks and logs; made if missing, for this user only.
    pub runtime_dir: PathBuf,
    /// Processors.
    pub vcpus: u32,
    /// Memory.
    pub memory_mib: u32,
    /// Whether its time goes by the instructions it executes, one a nanosecond, and not by the clock: then timers are the
    /// same share of all that runs, on a busy host too. Its processors take turns.
    pub counted_time: bool,
    /// Added to the kernel command line.
    pub kernel_options: String,
    /// The machine powers itself off when no session was connected for so long.
    pub idle: Duration,
    /// A machine that does not answer by then has failed.
    pub start_timeout: Duration,
}

impl LabConfig {
    /// Memory of the usual machine.
    pub const MEMORY_MIB: u32 = 3072;

    /// The usual machine: 2 processors, 3 GiB, off after two minutes without use.
    pub fn new(qemu: PathBuf, kernel: PathBuf, initrd: PathBuf, runtime_dir: PathBuf) -> Self {
        Self {
            qemu,
            firmware: Vec::new(),
            kernel,
            initrd,
            runtime_dir,
            vcpus: 2,
            memory_mib: Self::MEMORY_MIB,
            counted_time: false,
            kernel_options: String::new(),
            idle: Duration::from_secs(120),
            start_timeout: Duration::from_secs(120),
        }
    }
}
