//! What the vCPUs' port accesses reach.

pub mod console;
pub mod ports;
pub mod test_ports;
