//! Why a machine cannot be made.

use std::io;
use std::path::PathBuf;

use crate::address_map;

/// Why a machine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No /dev/kvm.
    #[error("/dev/kvm: {0}; see 'perfvisor doctor'")]
    OpenKvm(kvm_ioctls::Error),
    /// KVM refused something.
    #[error("KVM refused {0}: {1}")]
    Kvm(&'static str, kvm_ioctls::Error),
    /// KVM cannot keep PMU registers from the guest.
    #[error(
        "this KVM has no MSR filter, so it would answer PMU registers itself; use a host kernel of Linux 5.10 or later"
    )]
    NoMsrFilter,
    /// Too many CPUID leaves.
    #[error("{0} CPUID leaves are more than KVM takes")]
    TooManyCpuidLeaves(usize),
    /// Wrong number of vCPUs.
    #[error("{asked} vCPUs are not possible: this host's KVM allows 1 to {most}")]
    Vcpus {
        /// What was asked for.
        asked: u32,
        /// What can be had.
        most: u32,
    },
    /// Too little memory.
    #[error("{} MiB of memory are too little: give the guest at least {} MiB", .asked >> 20, address_map::MIN_MEMORY >> 20)]
    TooLittleMemory {
        /// What was asked for, in bytes.
        asked: u64,
    },
    /// Not whole pages.
    #[error("{asked} bytes of memory are not whole pages: give the guest a multiple of {} KiB", address_map::PAGE >> 10)]
    PartialPage {
        /// What was asked for, in bytes.
        asked: u64,
    },
    /// Too much memory.
    #[error("{} MiB of memory are more than this host has ({} MiB)", .asked >> 20, .host >> 20)]
    TooMuchMemory {
        /// What was asked for, in bytes.
        asked: u64,
        /// What there is, in bytes.
        host: u64,
    },
    /// The host's memory could not be asked for.
    #[error("cannot tell how much memory this host has: {0}")]
    HostMemory(io::Error),
    /// The host does not give it.
    #[error("cannot reserve {} MiB for the guest: {reason}", .asked >> 20)]
    Reserve {
        /// What was asked for, in bytes.
        asked: u64,
        /// The refusal.
        reason: String,
    },
    /// An access to guest memory failed.
    #[error("guest memory: {0}")]
    Memory(vm_memory::GuestMemoryError),
    /// ACPI tables too long.
    #[error("the ACPI tables do not fit into their place")]
    AcpiRoom,
    /// The guest would read wrong numbers.
    #[error(transparent)]
    Rdpmc(Refusal),
    /// A vCPU did not do what it was tried with.
    #[error(
        "a vCPU made an unexpected exit ({0}) in the trial before its boot; '--pmu-registers off' leaves the trial out"
    )]
    Probe(String),
    /// The kernel cannot be loaded.
    #[error("kernel {}: {reason}", .path.display())]
    Kernel {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The initial RAM disk cannot be loaded.
    #[error("initial RAM disk {}: {reason}", .path.display())]
    Initrd {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A module cannot be loaded.
    #[error("module {}: {reason}", .path.display())]
    Module {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A kernel leaves no memory for its boot information.
    #[error(
        "the kernel leaves no room for {size} bytes of boot information; give the guest more memory (--memory)"
    )]
    BootInformation {
        /// How much is needed.
        size: u64,
    },
    /// The command line is too long.
    #[error("the kernel command line has {length} characters; this kernel takes {limit}, without NUL")]
    CommandLine {
        /// How long it is.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A thread or an eventfd could not be had.
    #[error("the host gives no more threads or file descriptors: {0}")]
    Resources(io::Error),
}

/// Why a guest cannot have PMU registers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A plausible wrong number.
    #[error(
        "in guests on this host RDPMC reads 0 instead of faulting, so the guest's perf, which reads counters by it, would \
         show wrong numbers.\n{REMEDIES}"
    )]
    SilentZero,
    /// KVM's own vPMU answers.
    #[error(
        "in guests on this host RDPMC reads a counter of KVM's own vPMU, which cannot be switched off here, so the guest's \
         perf, which reads counters by it, would show wrong numbers.\n{REMEDIES}"
    )]
    Counts,
}

const REMEDIES: &str = "Choose '--pmu-registers off': the paravirtual interface alone, which never needs RDPMC and counts right;\n\
    or a host kernel on which RDPMC faults, such as Linux 6.12; or the lab machine: 'perfvisor --lab run';\n\
    or '--pmu-registers unchecked', if nothing in the guest uses RDPMC.";
