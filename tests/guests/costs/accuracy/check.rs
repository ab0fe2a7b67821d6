//! A check of a count: two lengths of some work, and by how much what is counted differs.

use anyhow::Result;
use tests::mark::{Mark, say};

use super::interface::{Counting, Interface, Mode};
use super::work::Work;
use crate::cpu::on_first_cpu;

/// With how many counters, and read how.
pub(super) const INTERFACES: [(Interface, usize); 6] = [
    (Interface::PerfctrCall, 1),
    (Interface::PerfctrCall, 4),
    (Interface::PerfctrPage, 4),
    (Interface::PerfRead, 1),
    (Interface::PerfRead, 4),
    (Interface::PerfPage, 4),
];

/// Counts something, and says what came of it.
pub(crate) struct Check {
    pub(crate) name: String,
    pub(super) check: Box<dyn FnOnce() -> Result<()> + Send>,
}

impl Check {
    /// In a thread of its own, as each operation.
    pub(crate) fn run(self) -> Result<()> {
        let Self { name, check } = self;
        match std::thread::spawn(check).join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => say(&Mark::NotRun { name, reason: format!("{error:#}") }),
            Err(_) => say(&Mark::NotRun { name, reason: "it panicked".to_owned() }),
        }
    }
}

/// A check that gives a known and a counted number.
pub(super) fn counted(name: String, count: impl FnOnce() -> Result<(u64, u64)> + Send + 'static) -> Check {
    let its = name.clone();
    let check = Box::new(move || {
        let (known, counted) = count()?;
        say(&Mark::Counted { name: its, known, counted })
    });
    Check { name, check }
}

/// The known and the counted difference of the two lengths; the median, where it is taken more than once.
pub(super) fn count(
    interface: Interface,
    mode: Mode,
    number: usize,
    work: Work,
    length: u64,
) -> Result<(u64, u64)> {
    on_first_cpu()?;
    let mut counters = interface.open(mode, number)?;
    counters.start()?;
    // What is done once only.
    between(&mut *counters, work, length)?;
    let pairs = (0..interface.pairs()).map(|_| {
        let (each, short) = between(&mut *counters, work, length)?;
        let (_, long) = between(&mut *counters, work, 3 * length)?;
        Ok((2 * length * each, long.wrapping_sub(short)))
    });
    let mut pairs = pairs.collect::<Result<Vec<_>>>()?;
    pairs.sort_unstable();
    Ok(pairs[pairs.len() / 2])
}

/// What one length counts, with the readings. One function for both lengths: inlined, the two would not be compiled alike.
#[inline(never)]
pub(super) fn between(counters: &mut dyn Counting, work: Work, length: u64) -> Result<(u64, u64)> {
    let start = counters.read()?;
    let each = work(length)?;
    Ok((each, counters.read()? - start))
}
