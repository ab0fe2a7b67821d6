//! The emulated PMU: the registers by which a guest programs counters without a driver of ours.
//!
//! Its counters follow the rules of all others: a register holds what it held when it was last written or stopped,
//! plus `now - start` while it counts. So writing a counter, enabling it and disabling it change software only; the
//! host counter that holds its event runs on. The host is called when an event is new to it, and when an overflow
//! with an interrupt is due sooner than any threshold that is set.
//!
//! One file for each way in which processors lay out their registers; what they hold is the family's table.

pub(crate) mod context;
mod counter;
mod p4_file;
mod p5_file;
mod p6_file;
pub(crate) mod register_file;
