//! The driver's module, taken out and put in again.

#![allow(unsafe_code)] // The system calls for modules.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// The image's list of modules: a path and parameters, one to a line.
const MODULES: &str = "/lib/perfvisor/modules.load";

/// The module's file. When it is dropped, the driver is in, without parameters.
pub(crate) struct Loaded(File);

impl Loaded {
    /// As it is.
    pub(crate) fn find() -> Result<Self> {
        let list = fs::read_to_string(MODULES).with_context(|| format!("reading {MODULES}"))?;
        let mut paths = list.lines().filter_map(|line| line.split_whitespace().next());
        let path = paths.find(|path| path.ends_with("/perfctr.ko")).context("it has no perfctr.ko")?;
        Ok(Self(File::open(path).with_context(|| format!("opening {path}"))?))
    }

    /// Loaded anew, with a parameter.
    pub(crate) fn with(parameter: &str) -> Result<Self> {
        let loaded = Self::find()?;
        loaded.again(parameter)?;
        Ok(loaded)
    }

    /// Anew, with another parameter.
    pub(crate) fn again(&self, parameter: &str) -> Result<()> {
        // Descriptors and threads that have just ended may hold it a moment longer.
        for _ in 0..100 {
            if self.take_out()? {
                break;
            }
            sleep(Duration::from_millis(50));
        }
        self.put_in(&CString::new(parameter)?)
    }

    /// Whether it is out now; it stays where it is while it is in use.
    pub(crate) fn take_out(&self) -> Result<bool> {
        // SAFETY: a name that ends with 0.
        let done = unsafe { libc::syscall(libc::SYS_delete_module, c"perfctr".as_ptr(), libc::O_NONBLOCK) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if done == 0 => Ok(true),
            Some(libc::ENOENT) => Ok(true),
            Some(libc::EWOULDBLOCK) => Ok(false),
            _ => Err(error).context("cannot unload the driver"),
        }
    }

    pub(crate) fn put_in(&self, parameters: &CStr) -> Result<()> {
        // SAFETY: an open file and parameters that end with 0.
        let done =
            unsafe { libc::syscall(libc::SYS_finit_module, self.0.as_raw_fd(), parameters.as_ptr(), 0) };
        ensure!(done == 0, "cannot load the driver: {}", io::Error::last_os_error());
        Ok(())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Err(error) = self.again("") {
            eprintln!("pmctest: {error:#}: what follows will fail");
        }
    }
}
