//! What a confined thread is for.

use std::fmt;

/// What a thread does, which decides what it may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The main loop.
    Main,
    /// This vCPU.
    Vcpu(u8),
    /// Writes the serial console's output.
    Console,
    /// Answers a client of the control socket.
    Control,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => f.write_str("the main thread"),
            Self::Vcpu(index) => write!(f, "the thread of vCPU {index}"),
            Self::Console => f.write_str("the serial console's thread"),
            Self::Control => f.write_str("a control thread"),
        }
    }
}

/// What a vCPU's thread counts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Nothing.
    Nothing,
    /// Perf events.
    Perf,
    /// The host module.
    Module,
    /// KVM's own vPMU.
    Kvm,
}
