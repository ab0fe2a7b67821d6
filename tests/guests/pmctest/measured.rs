//! A thread that counts its own instructions and branches.

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::VperfctrControl;
use libvperfctr::{Counter, Vperfctr, a_mode};
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION, spin};

/// Index of the counter of instructions.
pub(crate) const INSTRUCTIONS_AT: usize = 0;
/// Index of the counter of branches.
pub(crate) const BRANCHES_AT: usize = 1;

/// The TSC, instructions and branches, in user mode.
pub(crate) fn control() -> VperfctrControl {
    let counter = |evntsel, pmc| Counter { evntsel, escr: 0, pmc };
    match a_mode(true, &[counter(INSTRUCTIONS, 0), counter(BRANCHES, 1)]) {
        Ok(control) => control,
        Err(error) => unreachable!("two counters always fit: {error}"),
    }
}

/// Counters of the calling thread, running.
pub(crate) struct Measured {
    pub(crate) state: Vperfctr,
}

/// What is executed around the iterations, in instructions and branches: a constant of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overhead {
    instructions: u64,
    branches: u64,
}

impl Measured {
    pub(crate) fn start() -> Result<Self> {
        let state = Vperfctr::create()?;
        state.control(&control())?;
        Ok(Self { state })
    }

    /// Run `work` and that many iterations between two reads; what was counted beyond the iterations.
    #[inline(never)]
    pub(crate) fn overhead(&self, iterations: u64, work: impl FnOnce()) -> Result<Overhead> {
        let before = self.state.sums()?;
        work();
        spin(iterations);
        let after = self.state.sums()?;
        let beyond = |i: usize, each: u64| {
            let counted = after.pmc[i].checked_sub(before.pmc[i]).context("a count went backwards")?;
            counted.checked_sub(iterations * each).with_context(|| {
                format!(
                    "counter {i}: {counted} counted in {iterations} iterations of {each}: events are lost"
                )
            })
        };
        Ok(Overhead {
            instructions: beyond(INSTRUCTIONS_AT, INSTRUCTIONS_PER_ITERATION)?,
            branches: beyond(BRANCHES_AT, BRANCHES_PER_ITERATION)?,
        })
    }

    /// Counts of different lengths must differ by exactly the known number.
    pub(crate) fn is_exact(&self) -> Result<()> {
        self.is_exact_with(&[1, 1_000, 100_000, 1_001, 30_000], || ())
    }

    /// The same with `work` in every measurement, the same user instructions each time.
    pub(crate) fn is_exact_with(&self, lengths: &[u64], work: impl Fn()) -> Result<()> {
        // Once to touch every page and take every branch of a first time.
        self.overhead(1, &work)?;
        let first = self.overhead(1, &work)?;
        for &iterations in lengths {
            let overhead = self.overhead(iterations, &work)?;
            ensure!(
                overhead == first,
                "{iterations} iterations: {overhead:?} beyond them, and {first:?} beyond a single one"
            );
        }
        Ok(())
    }
}
