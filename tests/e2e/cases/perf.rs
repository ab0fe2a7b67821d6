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
mod programs;

use crate::case::Case;

/// What every family goes through, in this order.
pub(crate) const CASES: &[Case] =
    &[driver::CASE, stat::CASE, together::CASE, record::CASE, kernel::CASE, overflows::CASE, messages::CASE];
