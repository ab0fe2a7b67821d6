//! How the module's devices are asked.
#![allow(unsafe_code, reason = "ioctl has no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// `argument` is what the number's size and direction say.
pub(super) fn ioctl<T>(file: &File, number: u32, argument: &mut T) -> io::Result<()> {
    // SAFETY: callers pass a live structure of the size that is part of the number, which is all that the module
    // reads or writes.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), number.into(), ptr::from_mut(argument)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
