//! What the vCPUs' port accesses reach.

pub mod console;
pub mod ports;
pub mod stop;
pub mod test_ports;
