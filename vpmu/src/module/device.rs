//! The device of the module.
#![allow(unsafe_code, reason = "ioctl has no safe wrapper")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use perfctr_abi::host_module::{
    ARM, ATTACH, Arm, Attach, DEVICE, INFO, Info, LOAD, Load, MAX_COUNTERS, VERSION,
};

use super::global;
use super::page::StatePage;
use crate::snapshot::HardwareCounts;

/// The counters of the thread that attached them; a trait, so that tests can do without the module.
pub trait Counters: Sized {
    /// Attach the calling thread.
    fn attach(signal: libc::c_int) -> io::Result<Self>;
    /// Program a counter.
    fn load(&mut self, counter: u32, evntsel: u64) -> io::Result<()>;
    /// Set its alarm.
    fn arm(&mut self, counter: u32, after: u64) -> io::Result<()>;
    /// What it has counted since it was loaded.
    fn now(&self, counter: usize) -> u64;
    /// What all that cost.
    fn hardware(&self) -> HardwareCounts;
}

/// An open `/dev/perfctr-host` with a thread.
#[derive(Debug)]
pub struct Device {
    page: StatePage,
    file: File,
}

/// An open `/dev/perfctr-host` without a thread: as long as it is open, the counters stay with the module.
#[derive(Debug)]
pub struct Hold {
    info: Info,
    _file: File,
}

impl Hold {
    /// What the processor has.
    pub fn info(&self) -> Info {
        self.info
    }
}

/// Why the source `module` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// ENOENT, or ENXIO of a node that was left behind.
    #[error("the kernel module perfctr_host is not loaded")]
    NoModule,
    /// EACCES, EPERM.
    #[error("not allowed to open {DEVICE}")]
    NotAllowed,
    /// EBUSY: perf counts with hardware, for itself, its watchdog or a vPMU of KVM's.
    #[error("perf has the host's counters")]
    Busy,
    /// EBUSY: global mode has them ([`global`](super::global)).
    #[error("perfctr_host counts whole processors now")]
    Global,
    /// ENODEV.
    #[error("this processor cannot count guests alone")]
    NoGuestOnly,
    /// EIO: the host is a virtual machine, whose hypervisor gives it registers and no counters.
    #[error("this host's counters do not count: its hypervisor keeps them")]
    Still,
    /// The module is of another version.
    #[error("the loaded perfctr_host has interface version {0}, this perfvisor needs {VERSION}")]
    Version(u32),
    /// Anything else.
    #[error("{DEVICE}: {0}")]
    Os(#[from] io::Error),
}

/// Take the host's counters for the module, if it has not got them already.
///
/// # Errors
/// Why they cannot be had.
pub fn hold() -> Result<Hold, OpenError> {
    let file = open().map_err(|e| match open_error(e) {
        OpenError::Busy if global::is_on() => OpenError::Global,
        error => error,
    })?;
    let mut info = Info::default();
    // An older module does not know the number of a changed structure.
    ioctl(&file, INFO, &mut info).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOTTY) => OpenError::Version(0),
        _ => OpenError::Os(e),
    })?;
    if info.version != VERSION {
        return Err(OpenError::Version(info.version));
    }
    info.counters = info.counters.min(MAX_COUNTERS as u32);
    Ok(Hold { info, _file: file })
}

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

fn open_error(error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO) => OpenError::NoModule,
        Some(libc::EACCES | libc::EPERM) => OpenError::NotAllowed,
        Some(libc::EBUSY) => OpenError::Busy,
        Some(libc::ENODEV) => OpenError::NoGuestOnly,
        Some(libc::EIO) => OpenError::Still,
        _ => OpenError::Os(error),
    }
}

/// `argument` is what the number's size and direction say.
pub(super) fn ioctl<T>(file: &File, number: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: callers pass a live structure of the size that is part of the number, which is all that the module
    // reads or writes.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), number.into(), ptr::from_mut(argument)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Counters for Device {
    fn attach(signal: libc::c_int) -> io::Result<Self> {
        let file = open()?;
        ioctl(&file, ATTACH, &mut Attach { signo: signal, reserved: 0 })?;
        let page = StatePage::map(file.as_fd())?;
        Ok(Self { page, file })
    }

    fn load(&mut self, counter: u32, evntsel: u64) -> io::Result<()> {
        ioctl(&self.file, LOAD, &mut Load { counter, reserved: 0, evntsel })
    }

    fn arm(&mut self, counter: u32, after: u64) -> io::Result<()> {
        ioctl(&self.file, ARM, &mut Arm { counter, reserved: 0, after })
    }

    fn now(&self, counter: usize) -> u64 {
        self.page.read(counter)
    }

    fn hardware(&self) -> HardwareCounts {
        self.page.hardware()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers() {
        let of = |errno| open_error(io::Error::from_raw_os_error(errno));
        assert!(matches!(of(libc::ENOENT), OpenError::NoModule));
        assert!(matches!(of(libc::EACCES), OpenError::NotAllowed));
        assert!(matches!(of(libc::EBUSY), OpenError::Busy));
        assert!(matches!(of(libc::ENODEV), OpenError::NoGuestOnly));
        assert!(matches!(of(libc::EIO), OpenError::Still));
        assert!(matches!(of(libc::EMFILE), OpenError::Os(_)));
    }
}
