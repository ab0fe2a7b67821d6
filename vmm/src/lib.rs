//! perfvisor: a virtual machine monitor whose guests have performance counters that can be trusted.
//!
//! Data flows one way: an exit of a vCPU ([`vcpu`]) goes through its doors to a device or to its virtual PMU
//! (crate `vpmu`), and back. See ARCHITECTURE.md for the whole.

pub mod cli;
pub mod command;
pub mod confinement;
pub mod control;
pub mod devices;
mod doors;
pub mod dump;
pub mod global;
pub mod guest_session;
pub mod host;
pub mod lab;
pub mod machine;
pub mod place;
mod private_socket;
mod ratelimit;
pub mod registry;
pub mod say;
pub mod vcpu;
pub mod virtio;
