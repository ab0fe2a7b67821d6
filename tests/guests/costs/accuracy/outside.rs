//! Counts in kernel mode, against those of somebody outside: what a kernel executes is known to whoever counts the whole
//! machine meanwhile.
//!
//! Both count the same two lengths, less each other. The marks are outside this program's counts and inside the other's, and
//! the same in both lengths.

use anyhow::Result;
use tests::mark::{Mark, say};

use super::interface::{Interface, Mode};
use super::work::WORK;
use super::{Check, between};
use crate::REPEATED;
use crate::switch::on_first_cpu;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for interface in [Interface::PerfctrCall, Interface::PerfRead] {
        for mode in [Mode::Kernel, Mode::Both] {
            // In a storm there is another thread's kernel mode.
            for (work, length, run) in WORK.into_iter().filter(|(work, ..)| *work != "context-switches") {
                let name = format!("accuracy/{}-1/{}/{work}", interface.name(), mode.name());
                let its = name.clone();
                let check = Box::new(move || {
                    on_first_cpu()?;
                    let mut counters = interface.open(mode, 1)?;
                    counters.start()?;
                    run(length)?;
                    counters.read()?;
                    for _ in 0..REPEATED {
                        let mut count = |length| -> Result<u64> {
                            say(&Mark::Begin { name: its.clone(), length })?;
                            Ok(between(&mut *counters, run, length)?.1)
                        };
                        let (short, long) = (count(length)?, count(3 * length)?);
                        let counted = long.wrapping_sub(short);
                        say(&Mark::Compare { kernel: mode == Mode::Kernel, counted })?;
                    }
                    Ok(())
                });
                checks.push(Check { name, check });
            }
        }
    }
    checks
}
