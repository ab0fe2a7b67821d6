//! Counts in kernel mode, against those of somebody outside: what a kernel executes is known to whoever counts the whole
//! machine meanwhile.
//!
//! Both count the same two lengths, less each other. The marks are outside this program's counts and inside the other's, and
//! the same in both lengths. The other counts user mode, too, which is known here.

use anyhow::Result;
use tests::mark::{Mark, say};

use super::check::{Check, between};
use super::interface::{Interface, Mode};
use super::work::WORK;
use crate::cpu::on_first_cpu;
use crate::operation::REPEATED;

/// Work of the kernel's own. Not the storm, in which another thread's is.
const IN_KERNEL: [&str; 3] = ["page-faults", "system-calls", "signals"];
/// So many times as long as where counts are exact: what the guest does for the marks is not the same each time.
const LONGER: u64 = 10;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for interface in [Interface::PerfctrCall, Interface::PerfRead] {
        for mode in [Mode::Kernel, Mode::Both] {
            for (work, length, run) in WORK.into_iter().filter(|(work, ..)| IN_KERNEL.contains(work)) {
                let length = length * LONGER;
                let name = format!("compared/{}-1/{}/{work}", interface.name(), mode.name());
                let its = name.clone();
                let check = Box::new(move || {
                    on_first_cpu()?;
                    let mut counters = interface.open(mode, 1)?;
                    counters.start()?;
                    between(&mut *counters, run, length)?;
                    for _ in 0..REPEATED {
                        let mut count = |length| -> Result<(u64, u64)> {
                            say(&Mark::Begin { name: its.clone(), length })?;
                            between(&mut *counters, run, length)
                        };
                        let ((each, short), (_, long)) = (count(length)?, count(3 * length)?);
                        let apart = if mode == Mode::Kernel { 2 * length * each } else { 0 };
                        say(&Mark::Compare { apart, counted: long.wrapping_sub(short) })?;
                    }
                    Ok(())
                });
                checks.push(Check { name, check });
            }
        }
    }
    checks
}
