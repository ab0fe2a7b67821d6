//! What can go wrong, with the cause and the remedy.

use std::fmt;

use perfctr_abi::layout::ABI_VERSION;
use rustix::io::Errno;

/// Why an operation on counters failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel does not know the call.
    #[error(
        "the perfctr driver isn't loaded: this kernel answers ENOSYS. In a perfvisor guest its init loads \
         perfctr.ko (see the console with --console -); elsewhere load the module of guest-driver/module"
    )]
    NoDriver,
    /// The driver speaks another version of the interface (EPROTO).
    #[error(
        "the perfctr driver has ABI {kernel:#010x}, this program {ABI_VERSION:#010x}, and the major versions \
         differ: build both from the same source"
    )]
    Abi {
        /// `abi_version` of the driver.
        kernel: u32,
    },
    /// More counters than any processor has.
    #[error("{0} counters asked for, and a control has room for 18: ask for fewer")]
    TooManyCounters(usize),
    /// A period that cannot be a restart value.
    #[error("a period of {0} events: it must be from 1 to 2147483648")]
    Period(u32),
    /// The driver does not announce an extension ([`extension`](crate::layout::extension)).
    #[error("this perfctr driver {0}; one of a newer perfvisor may (`perfex -i` shows its version)")]
    NotOffered(&'static str),
    /// One of the calls was refused.
    #[error("{call}: {errno}{}", hint(*call, *errno))]
    Call {
        /// Which one.
        call: Call,
        /// Its error number.
        errno: Errno,
    },
}

impl Error {
    /// The error number a C program would see.
    pub fn errno(&self) -> Errno {
        match self {
            Error::NoDriver => Errno::NOSYS,
            Error::Abi { .. } => Errno::PROTO,
            Error::TooManyCounters(_) | Error::Period(_) => Errno::INVAL,
            Error::NotOffered(_) => Errno::OPNOTSUPP,
            Error::Call { errno, .. } => *errno,
        }
    }
}

/// An operation of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `perfctr_info`
    Info,
    /// `vperfctr_open`
    Open,
    /// `vperfctr_control`
    Control,
    /// `vperfctr_unlink`
    Unlink,
    /// `vperfctr_iresume`
    Iresume,
    /// `vperfctr_read`
    Read,
    /// `mmap` of a state
    Map,
    /// `mmap` of a sample buffer
    MapSamples,
    /// `ioctl` VPERFCTR_READ_CHILDREN
    ReadChildren,
}

impl Call {
    /// The error of this call for an error number.
    pub fn failed(self, errno: Errno) -> Error {
        if errno == Errno::NOSYS { Error::NoDriver } else { Error::Call { call: self, errno } }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Call::Info => "perfctr_info",
            Call::Open => "vperfctr_open",
            Call::Control => "vperfctr_control",
            Call::Unlink => "vperfctr_unlink",
            Call::Iresume => "vperfctr_iresume",
            Call::Read => "vperfctr_read",
            Call::Map => "mmap of the state",
            Call::MapSamples => "mmap of the sample buffer",
            Call::ReadChildren => "VPERFCTR_READ_CHILDREN",
        })
    }
}

/// What an error number means for a call, as far as the number alone does not say it.
fn hint(call: Call, errno: Errno) -> &'static str {
    match (call, errno) {
        (Call::Open, Errno::EXIST) => ": the thread already has counters; open them without creating",
        (Call::Open, Errno::BUSY) | (Call::Control, Errno::BUSY) => {
            ": the processor's counters are taken by somebody else; see `perfvisor doctor` on the host"
        }
        (Call::Open, Errno::SRCH) => ": no such thread, or it is not stopped under ptrace by this one",
        (Call::Control, Errno::ACCESS) => {
            ": counting kernel mode needs CAP_PERFMON, or the sysctl kernel.perf_event_paranoid at most 1, or the driver's \
             parameter allow_kernel (/sys/module/perfctr/parameters/allow_kernel), and a security module may forbid it; \
             user mode alone needs none of them (perfex -e cycles:u)"
        }
        (Call::Open, Errno::ACCESS) => {
            ": a security module (SELinux, ...) forbids this user performance events"
        }
        (Call::Control, Errno::PERM) => {
            ": a reserved bit is set in an event select, or overflow interrupts were asked for and this \
             processor has none"
        }
        (Call::Control, Errno::INVAL) => {
            ": the control is malformed: too many counters, a counter number out of range or used twice, or \
             an event select without its enable bit (0x400000) or a privilege level (0x10000 user, 0x20000 \
             kernel), or a flag that the driver does not know or that does not go with interrupts"
        }
        (Call::Control, Errno::OPNOTSUPP) => ": the host has no event that counts this",
        (Call::Control | Call::Iresume, Errno::SRCH) => {
            ": the counters are no longer attached to a thread, or to another one that is not stopped under ptrace \
             by this one"
        }
        (Call::Read | Call::Unlink, Errno::SRCH) => {
            ": the counters belong to another thread, which is not stopped under ptrace by this one"
        }
        (Call::Read, Errno::IO) => ": the host lost counts, and the driver does not give wrong ones",
        (Call::ReadChildren, Errno::IO) => ": a child could not be counted, or lost counts",
        (Call::Iresume, Errno::PERM) => ": the counters were not stopped by an overflow",
        (Call::Read | Call::ReadChildren, Errno::INVAL) => {
            ": the thread had no counters when this descriptor was opened"
        }
        _ => "",
    }
}
