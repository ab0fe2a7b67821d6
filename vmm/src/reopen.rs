//! A standard stream, opened once more.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};

/// Opens a pipe or terminal once more, so that only our writes are non-blocking and not those of every process
/// that shares the descriptor. Files keep their position and mode only in the descriptor we were given, and they do
/// not block; sockets cannot be opened.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let kind = FileType::from_raw_mode(fstat(fd).ok()?.st_mode);
    if !matches!(kind, FileType::Fifo | FileType::CharacterDevice) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).ok()
}
