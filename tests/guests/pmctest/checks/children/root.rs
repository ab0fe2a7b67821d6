//! The root of a family, and what its children's sums must be.

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::{SumCtrs, VperfctrControl, extension, flag};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION};

use crate::measured::{BRANCHES_AT, INSTRUCTIONS_AT, control};

/// Iterations of a child. The first is there to touch every page, the second to compare with.
const LENGTHS: [u64; 7] = [1, 1, 100, 1_000_000, 3, 300_001, 10_000];

/// The usual control, for children too.
pub(super) fn inheriting() -> VperfctrControl {
    VperfctrControl { flags: flag::INHERIT, ..control() }
}

/// The root of a family.
pub(super) struct Root {
    pub(super) state: Vperfctr,
}

/// What a family executed besides its iterations, in instructions and branches.
pub(super) type Beyond = (u64, u64);

impl Root {
    pub(super) fn start() -> Result<Self> {
        libvperfctr::Driver::query()?.require(extension::INHERIT, "does not count children")?;
        let state = Vperfctr::create()?;
        state.control(&inheriting())?;
        Ok(Self { state })
    }

    /// What children of `work` have counted beyond `iterations`, once they have ended.
    pub(super) fn beyond(&self, iterations: u64, work: impl FnOnce() -> Result<()>) -> Result<Beyond> {
        let before = self.state.children_sums()?;
        work()?;
        let after = self.state.children_sums()?;
        ensure!(after.tsc > before.tsc, "the children's TSC stood still");
        beyond(&before, &after, iterations)
    }

    pub(super) fn is_exact(&self, times: u64, work: impl Fn(u64) -> Result<()>) -> Result<()> {
        self.is_exact_with(&LENGTHS, times, work)
    }

    /// `work`, with some length, makes children execute `times` that many iterations, and always the same besides.
    pub(super) fn is_exact_with(
        &self,
        lengths: &[u64],
        times: u64,
        work: impl Fn(u64) -> Result<()>,
    ) -> Result<()> {
        let mut first = None;
        for (round, &length) in lengths.iter().enumerate() {
            let beyond = self.beyond(times * length, || work(length))?;
            if round > 0 {
                let first = *first.get_or_insert(beyond);
                ensure!(beyond == first, "length {length}: {beyond:?} beyond the iterations, not {first:?}");
            }
        }
        Ok(())
    }
}

pub(super) fn beyond(before: &SumCtrs, after: &SumCtrs, iterations: u64) -> Result<Beyond> {
    let beyond = |i: usize, each: u64| {
        let counted = after.pmc[i].checked_sub(before.pmc[i]).context("a children's sum went backwards")?;
        counted.checked_sub(iterations * each).with_context(|| {
            format!("counter {i}: {counted} counted in {iterations} iterations of {each}: events are lost")
        })
    };
    Ok((beyond(INSTRUCTIONS_AT, INSTRUCTIONS_PER_ITERATION)?, beyond(BRANCHES_AT, BRANCHES_PER_ITERATION)?))
}
