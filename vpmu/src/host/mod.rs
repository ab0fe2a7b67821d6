//! The host: what a source of counts must do, and which processor counts.
//!
//! The lowest room: nothing here knows of guests. The sources implement [`pmu::HostPmu`].

pub(crate) mod family;
pub(crate) mod pmu;
pub(crate) mod processor;
