//! The guest kernel's own perf, with the registers of a processor's counters and nothing else of ours but RDPMC: it
//! finds the PMU of each family, counts exactly, and takes exactly the samples that are due.
//!
//! Each family has a guest of its own with the same cases: [`driver`] first, which prepares the guest, [`messages`] last.

pub(crate) mod driver;
pub(crate) mod kernel;
pub(crate) mod messages;
pub(crate) mod overflows;
pub(crate) mod record;
pub(crate) mod stat;
pub(crate) mod together;

mod family;
mod printed;

use anyhow::{Context, Result};
use images::layout::Layout;

use crate::case::{Case, Copied};

/// What every family goes through, in this order.
pub(crate) const CASES: &[Case] =
    &[driver::CASE, stat::CASE, together::CASE, record::CASE, kernel::CASE, overflows::CASE, messages::CASE];

/// perf itself.
fn program() -> Result<Vec<Copied>> {
    let layout = Layout::open()?;
    let perf = layout.perf().with_context(|| format!("perf is not there; {}", layout.remedy()))?;
    Ok(vec![(perf, "/usr/bin/perf".to_owned())])
}

/// `spin` with arguments that always have the same form.
fn spin(iterations: u64) -> String {
    format!("spin {iterations:012}")
}
