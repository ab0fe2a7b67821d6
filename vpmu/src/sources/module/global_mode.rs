//! Global mode: counters of whole processors, for all that runs on them.
//!
//! It needs CAP_PERFMON or CAP_SYS_ADMIN, and all counters: perf and virtual CPUs have none meanwhile.

use std::fs::{File, OpenOptions};
use std::io;

use perfctr_abi::host_module::{CPU_LOAD, CPU_READ, CpuLoad, INFO, MAX_COUNTERS, VERSION};
pub use perfctr_abi::host_module::{CpuState, GLOBAL_DEVICE, GUEST_ONLY, HOST_ONLY, Info};

use super::ioctl::ioctl;

/// Whether somebody counts in global mode.
pub fn is_on() -> bool {
    std::fs::read_to_string("/sys/module/perfctr_host/parameters/global").is_ok_and(|text| text.trim() == "Y")
}

/// An open [`GLOBAL_DEVICE`]. Its end stops everything.
#[derive(Debug)]
pub struct Global {
    file: File,
    info: Info,
}

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// ENOENT, or ENXIO of a node that was left behind.
    #[error("the kernel module perfctr_host is not loaded")]
    NoModule,
    /// EACCES, EPERM.
    #[error("only root may count whole processors")]
    NotAllowed,
    /// EBUSY.
    #[error("somebody else has the host's counters")]
    Busy,
    /// The module is of another version.
    #[error("the loaded perfctr_host has interface version {0}, this perfvisor needs {VERSION}")]
    Version(u32),
    /// Anything else.
    #[error("{GLOBAL_DEVICE}: {0}")]
    Os(#[from] io::Error),
}

impl Global {
    /// Take the host's counters.
    ///
    /// # Errors
    /// Why they cannot be had.
    pub fn open() -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).open(GLOBAL_DEVICE).map_err(open_error)?;
        let mut info = Info::default();
        ioctl(&file, INFO, &mut info)?;
        if info.version != VERSION {
            return Err(Error::Version(info.version));
        }
        info.counters = info.counters.min(MAX_COUNTERS as u32);
        Ok(Self { file, info })
    }

    /// What each processor has, and what an event select may be.
    pub fn info(&self) -> Info {
        self.info
    }

    /// Have a counter of `cpu` begin at 0. One that is off counts when it comes back.
    ///
    /// # Errors
    /// EINVAL for a processor or a counter that is not there, EPERM for an event that is not allowed.
    pub fn load(&self, cpu: u32, counter: u32, evntsel: u64) -> io::Result<()> {
        ioctl(&self.file, CPU_LOAD, &mut CpuLoad { cpu, counter, evntsel })
    }

    /// What `cpu` has counted.
    ///
    /// # Errors
    /// EINVAL if there is none; EIO if the kernel cleared counters that perf had used before, so that counts were lost:
    /// it does that once, and the next [`Global`] will do.
    pub fn read(&self, cpu: u32) -> io::Result<CpuState> {
        let mut state = CpuState { cpu, ..CpuState::default() };
        ioctl(&self.file, CPU_READ, &mut state)?;
        Ok(state)
    }
}

fn open_error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO) => Error::NoModule,
        Some(libc::EACCES | libc::EPERM) => Error::NotAllowed,
        Some(libc::EBUSY) => Error::Busy,
        _ => Error::Os(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers() {
        let of = |errno| open_error(io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::ENOENT), Error::NoModule));
        assert!(matches!(of(libc::EPERM), Error::NotAllowed));
        assert!(matches!(of(libc::EBUSY), Error::Busy));
        assert!(matches!(of(libc::EMFILE), Error::Os(_)));
    }
}
