//! What was counted, and for whom: value = sum + (now - start).
//!
//! [`slots`] are the host's counters by what they count. [`attachment`] is the state of the paravirtual interface that is
//! attached, with its running [`interval`]; the emulated PMU's counters take differences of slots themselves. All of
//! it goes through [`accounts`], and ends in [`totals`].

pub(crate) mod accounts;
pub(crate) mod attachment;
pub(crate) mod control_table;
pub(crate) mod interval;
pub(crate) mod placement;
pub(crate) mod register_value;
pub(crate) mod slots;
pub(crate) mod state_page;
pub(crate) mod totals;
