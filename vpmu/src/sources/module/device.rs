//! The device of the module.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;

use perfctr_abi::host_module::{
    ARM, ATTACH, Arm, Attach, DEVICE, EMULATED, INFO, Info, LOAD, Load, MAX_COUNTERS, VERSION,
};

use super::global_mode;
use super::ioctl::ioctl;
use super::state_page::StatePage;
use crate::host::pmu::HardwareCounts;

/// The counters of the thread that attached them; a trait, so that tests can do without the module.
pub trait Counters: Sized {
    /// Without a thread yet.
    fn open() -> io::Result<Self>;
    /// Attach the calling thread.
    fn attach(&mut self, signal: libc::c_int) -> io::Result<()>;
    /// Program a counter.
    fn load(&mut self, counter: u32, evntsel: u64) -> io::Result<()>;
    /// Set its overflow threshold.
    fn arm(&mut self, counter: u32, after: u64) -> io::Result<()>;
    /// What it has counted since it was loaded; `None`: the counters were taken away.
    fn now(&self, counter: usize) -> Option<u64>;
    /// They were taken away, and it takes another attachment to count again.
    fn is_lost(&self) -> bool;
    /// Whether what KVM executes in the guest's place counts.
    fn counts_emulated(&self) -> bool;
    /// What all that cost.
    fn hardware(&self) -> HardwareCounts;
}

/// The ioctls of a vCPU's thread.
pub const IOCTLS: [u32; 4] = [ATTACH, INFO, LOAD, ARM];

/// An open `/dev/perfctr-host`, with a thread once that counts.
#[derive(Debug)]
pub struct Device {
    page: Option<StatePage>,
    file: File,
    emulated: bool,
}

/// An open `/dev/perfctr-host` without a thread: the module stays loaded. The counters are taken when counting begins.
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
    /// EBUSY: global mode has them ([`global`](super::global_mode)).
    #[error("perfctr_host counts whole processors now")]
    Global,
    /// ENODEV.
    #[error("this processor cannot count guests alone")]
    NoGuestOnly,
    /// EOPNOTSUPP: KVM's vPMU is a mediated one.
    #[error("KVM loads and stores all counters itself on this host (its parameter enable_mediated_pmu)")]
    Mediated,
    /// EPERM, with the module's parameter `enabled` off.
    #[error("root has switched perfctr_host's counting off")]
    Off,
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

/// Find out whether the module can count here and now. That takes the counters from nobody: counting does.
///
/// # Errors
/// Why it cannot.
pub fn hold() -> Result<Hold, OpenError> {
    let file = open().map_err(|e| match open_error(e) {
        OpenError::Busy if global_mode::is_on() => OpenError::Global,
        OpenError::NotAllowed if is_off() => OpenError::Off,
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

/// Whether root has taken the counters back.
fn is_off() -> bool {
    std::fs::read_to_string("/sys/module/perfctr_host/parameters/enabled")
        .is_ok_and(|text| text.trim() == "N")
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
        Some(libc::EOPNOTSUPP) => OpenError::Mediated,
        Some(libc::EIO) => OpenError::Still,
        _ => OpenError::Os(error),
    }
}

impl Counters for Device {
    fn open() -> io::Result<Self> {
        Ok(Self { page: None, file: open()?, emulated: false })
    }

    fn attach(&mut self, signal: libc::c_int) -> io::Result<()> {
        ioctl(&self.file, ATTACH, &mut Attach { signo: signal, reserved: 0 })?;
        if self.page.is_none() {
            self.page = Some(StatePage::map(self.file.as_fd())?);
        }
        // Asked now, for KVM may have been loaded since.
        let mut info = Info::default();
        ioctl(&self.file, INFO, &mut info)?;
        self.emulated = info.flags & EMULATED != 0;
        Ok(())
    }

    fn load(&mut self, counter: u32, evntsel: u64) -> io::Result<()> {
        ioctl(&self.file, LOAD, &mut Load { counter, reserved: 0, evntsel })
    }

    fn arm(&mut self, counter: u32, after: u64) -> io::Result<()> {
        ioctl(&self.file, ARM, &mut Arm { counter, reserved: 0, after })
    }

    fn now(&self, counter: usize) -> Option<u64> {
        self.page.as_ref()?.read(counter)
    }

    fn is_lost(&self) -> bool {
        self.page.as_ref().is_some_and(StatePage::is_lost)
    }

    fn counts_emulated(&self) -> bool {
        self.emulated
    }

    fn hardware(&self) -> HardwareCounts {
        self.page.as_ref().map(StatePage::hardware).unwrap_or_default()
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
        assert!(matches!(of(libc::EOPNOTSUPP), OpenError::Mediated));
        assert!(matches!(of(libc::EIO), OpenError::Still));
        assert!(matches!(of(libc::EMFILE), OpenError::Os(_)));
    }
}
