//! What a guest reaches its counters by: the paravirtual interface of the guest driver, and the emulated registers of its
//! PMU. Neither knows of the other.

pub(crate) mod msr;
pub(crate) mod outcome;
pub(crate) mod pv;
