//! Whether this host can count for a guest by perf.

use std::io;

use perf_event_open_sys::bindings::PERF_COUNT_HW_INSTRUCTIONS;

use super::counter::Counter;
use crate::host::pmu::HostEvent;

/// What the source `perf` can do here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfAccess {
    /// Counters are read without a system call.
    pub rdpmc: bool,
}

/// Why the source `perf` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// ENOENT, EOPNOTSUPP, ENODEV, ENXIO: the host has no PMU that perf knows.
    #[error("this machine has no performance counters that perf can use")]
    NoPmu,
    /// EACCES, EPERM: not allowed to count the guest's kernel mode, or a seccomp filter forbids it.
    #[error("not allowed: needs kernel.perf_event_paranoid <= 1 or CAP_PERFMON")]
    NotAllowed,
    /// EBUSY, or opened without finding a free counter.
    #[error("all counters are taken")]
    Taken,
    /// EINVAL: a PMU that cannot leave the host out.
    #[error("the PMU cannot count guests only")]
    NoGuestOnly,
    /// ENOSYS: a kernel without perf.
    #[error("the kernel has no perf_event_open")]
    NoPerf,
    /// Anything else.
    #[error("perf_event_open: {0}")]
    Os(io::Error),
}

/// Open a guest-only event (instructions, user and kernel mode) on the calling thread, and close it again.
///
/// # Errors
/// Why it is not possible. That there is a KVM to run guests is not looked at: without one, the event opens and
/// stays at 0.
pub fn probe() -> Result<PerfAccess, ProbeError> {
    let event = HostEvent { config: PERF_COUNT_HW_INSTRUCTIONS.into(), usr: true, os: true };
    let counter = Counter::open_hardware(event).map_err(probe_error)?;
    counter.read().ok_or(ProbeError::Taken)?;
    Ok(PerfAccess { rdpmc: counter.has_rdpmc() })
}

fn probe_error(error: io::Error) -> ProbeError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => ProbeError::NoPmu,
        Some(libc::EACCES | libc::EPERM) => ProbeError::NotAllowed,
        Some(libc::EBUSY | libc::ENOSPC) => ProbeError::Taken,
        Some(libc::EINVAL) => ProbeError::NoGuestOnly,
        Some(libc::ENOSYS) => ProbeError::NoPerf,
        _ => ProbeError::Os(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers() {
        let of = |errno| probe_error(io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::ENOENT), ProbeError::NoPmu));
        assert!(matches!(of(libc::EACCES), ProbeError::NotAllowed));
        assert!(matches!(of(libc::EBUSY), ProbeError::Taken));
        assert!(matches!(of(libc::EINVAL), ProbeError::NoGuestOnly));
        assert!(matches!(of(libc::ENOSYS), ProbeError::NoPerf));
        assert!(matches!(of(libc::EMFILE), ProbeError::Os(_)));
    }
}
