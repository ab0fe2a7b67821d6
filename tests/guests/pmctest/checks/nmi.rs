//! NMIs: those of overflows are the driver's, and no others.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::thread::sched_setaffinity;
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::workload::spin;

use crate::check::Check;
use crate::expect::equal;
use crate::interrupting::{Interrupted, Then};
use crate::kernel_log::KernelLog;
use crate::placed::{only, with_a_rival_and_alone};

pub(super) const CHECKS: &[Check] =
    &[Check { name: "nmi-of-others", run: of_others }, Check { name: "nmi-of-overflows", run: of_overflows }];

/// What the kernel says of one that nobody has claimed.
const UNKNOWN: &str = "NMI received for unknown reason";
const DEVICE: &str = "/dev/cpu/0/msr";
/// Interrupt command register of a local APIC in x2APIC mode, and the command: an NMI for the APIC with id 0, which is
/// CPU 0's (SDM volume 3, "ICR Operation in x2APIC Mode").
const X2APIC_ICR: u64 = 0x830;
const NMI_FOR_CPU_0: u64 = 0x400;
/// So many that the kernel's own limit of messages does not matter.
const SENT: usize = 3;

/// Somebody sends one while interrupting counters run, so that the system dumps itself, perhaps: the kernel hears of it.
fn of_others() -> Result<()> {
    sched_setaffinity(None, &only(0))?;
    let device = OpenOptions::new().write(true).open(DEVICE).context(DEVICE)?;
    let mut log = KernelLog::begin()?;
    let interrupted = Interrupted::start(Then::Resume, INSTRUCTIONS, 100_000)?;
    // Overflows before it, whose NMIs have come, explain none.
    spin(100_000);
    equal("unknown NMIs before", log.count(UNKNOWN)?, 0)?;
    for _ in 0..SENT {
        thread::sleep(std::time::Duration::from_millis(150));
        device.write_all_at(&NMI_FOR_CPU_0.to_le_bytes(), X2APIC_ICR).context("the command")?;
    }
    equal("NMIs that the kernel heard of", log.count(UNKNOWN)?, SENT)?;
    spin(100_000);
    ensure!(interrupted.is_exact(100_000)? >= 8, "overflows are missing");
    Ok(())
}

/// However they come: in turns with another thread, found by a switch before they come, two at once.
fn of_overflows() -> Result<()> {
    let mut log = KernelLog::begin()?;
    with_a_rival_and_alone(|| {
        for (event, period) in [(INSTRUCTIONS, 3_001), (BRANCHES, 501)] {
            let interrupted = Interrupted::start(Then::Resume, event, period)?;
            spin(100_000);
            interrupted.state.stop()?;
            ensure!(interrupted.seen().signals > 125, "overflows are missing");
        }
        Ok(())
    })?;
    // Each of these is the other's rival.
    let (first, second) = (twin(2_003), twin(3_001));
    first?;
    second?;
    equal("NMIs that nobody claimed", log.count(UNKNOWN)?, 0)
}

/// Two threads of one CPU, each with counters of its own.
fn twin(period: u32) -> Result<()> {
    let interrupting = move || -> Result<()> {
        sched_setaffinity(None, &only(0))?;
        let interrupted = Interrupted::start(Then::Resume, INSTRUCTIONS, period)?;
        for _ in 0..60 {
            spin(1_000);
            rustix::thread::sched_yield();
        }
        interrupted.state.stop()?;
        ensure!(interrupted.seen().signals > 60, "overflows are missing");
        Ok(())
    };
    let other = thread::spawn(interrupting);
    interrupting()?;
    other.join().ok().context("the other thread panicked")?
}
