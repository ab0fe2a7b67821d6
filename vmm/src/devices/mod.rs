//! What the vCPUs' port and memory accesses reach.

pub mod console;
pub mod ports;
