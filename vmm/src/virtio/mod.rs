//! The session console: a virtio console behind virtio-mmio, whose one port carries a session.
//!
//! * [`MmioTransport`]: the registers. vCPU threads read and write them; nothing else happens on those threads.
//! * [`SessionConsole`]: the data path, on the main event loop. Queue notifications reach it as ioeventfds, its
//!   interrupts leave as an irqfd, so neither costs a trip through a vCPU's exit handling.
//!
//! Everything the guest wrote is untrusted: an address, a length or a message that cannot be right puts the
//! device into the state NEEDS_RESET, is reported once, and the VM goes on.

mod console;
mod port_control;
mod queues;
mod transport;

#[cfg(test)]
mod tests;

pub use console::{PortBackend, SessionConsole};
pub use port_control::PORT_NAME;
pub use transport::{MmioTransport, QUEUE_NOTIFY};
