//! Where counts come from: each source is a [`HostPmu`](crate::host::pmu::HostPmu).

mod counter_instructions;
pub mod module;
pub mod perf;
pub mod sim;
