//! Counts that perfex printed, and what they must be.

use anyhow::{Context, Result, ensure};
use tests::counts::{self, Counts};
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION};

use crate::dump::Dump;

/// perfex on instructions and branches at once, for `spin`.
pub(super) const PERFEX: &str = "perfex -e 0x004100C0 -e 0x004100C2";

/// Counts of two runs of `spin` with these numbers of iterations differ by exactly the iterations' events.
pub(super) fn differ_exactly(short: (&Counts, u64), long: (&Counts, u64)) -> Result<()> {
    let iterations = long.1 - short.1;
    for (event, name, each) in [
        (INSTRUCTIONS, "instructions", INSTRUCTIONS_PER_ITERATION),
        (BRANCHES, "branches", BRANCHES_PER_ITERATION),
    ] {
        let (few, many) = (short.0.of(event)?, long.0.of(event)?);
        let difference =
            many.checked_sub(few).with_context(|| format!("{many} {name} is less than {few}"))?;
        ensure!(
            difference == iterations * each,
            "{name}: {few} for {} iterations, {many} for {}: a difference of {difference}, expected exactly {}",
            short.1,
            long.1,
            iterations * each
        );
    }
    Ok(())
}

/// The host's totals are the sums of what the guest attributed.
pub(crate) fn agree(dump: &Dump, printed: &[Counts]) -> Result<()> {
    let (host, mut guest) = (dump.totals(), counts::totals(printed));
    guest.retain(|_, total| *total > 0);
    ensure!(host == guest, "the host counted {host:?}, the guest attributed {guest:?}");
    Ok(())
}
