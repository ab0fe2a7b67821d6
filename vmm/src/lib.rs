//! perfvisor: a virtual machine monitor whose guests have performance counters that can be trusted.
//!
//! Data flows one way: an exit of a vCPU ([`vcpu`]) goes through its exit handler to a device or to its virtual PMU (crate
//! `vpmu`), and from there to the host's counters; and back. No module uses one that uses it. See ARCHITECTURE.md for the whole.

mod address_map;
pub mod cli;
pub mod command;
pub mod confinement;
pub mod control_socket;
pub mod devices;
pub mod dump;
mod exit_handler;
pub mod guest_session;
pub mod host;
pub mod host_count;
pub mod kick_signal;
pub mod lab;
pub mod machine;
pub mod place;
mod private_socket;
mod ratelimit;
pub mod registry;
mod reopen;
pub mod say;
mod terminal;
pub mod vcpu;
pub mod virtio;
