//! What an interface counts when nothing is done: its own instructions, from one point at which the counter is looked at to
//! the next (after Zaparanuks, Jovic, Hauswirth: Accuracy of Performance Counter Measurements, ISPASS 2009).

use anyhow::Result;

use super::check::{Check, counted};
use super::interface::{Counting, Interface, Mode};
use crate::cpu::on_first_cpu;

/// From where to where.
type Pattern = fn(&mut dyn Counting) -> Result<u64>;
const PATTERNS: [(&str, Pattern); 2] =
    [("read-read", between_two_readings), ("start-stop", from_start_to_stop)];
const NUMBERS: [usize; 3] = [1, 2, 4];
/// Of so many the median is taken: a timer of the guest comes in between now and then.
const TIMES: usize = 9;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for interface in Interface::ALL {
        for number in NUMBERS {
            for mode in Mode::ALL {
                for (pattern, nothing) in PATTERNS {
                    let name = format!("nothing/{}-{number}/{}/{pattern}", interface.name(), mode.name());
                    checks.push(counted(name, move || {
                        on_first_cpu()?;
                        let mut counters = interface.open(mode, number)?;
                        let mut counts =
                            (0..TIMES).map(|_| nothing(&mut *counters)).collect::<Result<Vec<_>>>()?;
                        counts.sort_unstable();
                        Ok((0, counts[TIMES / 2]))
                    }));
                }
            }
        }
    }
    checks
}

fn between_two_readings(counters: &mut dyn Counting) -> Result<u64> {
    counters.start()?;
    // What is done once only.
    counters.read()?;
    let first = counters.read()?;
    Ok(counters.read()? - first)
}

fn from_start_to_stop(counters: &mut dyn Counting) -> Result<u64> {
    for _ in 0..2 {
        counters.start()?;
        counters.stop()?;
    }
    counters.read()
}
