//! perfvisor's standard output and standard error.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use session::ByteQueue;

use super::watch::{Watch, Watched};

/// A pipe that polls as writable takes at least so much without blocking.
const SAFE_WRITE: usize = 4096;

/// What came of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Fine, though some may have to wait.
    Fine,
    /// Nobody reads any more; reported once.
    Broken,
}

/// Bytes on their way to a reader who may be slow.
#[derive(Debug)]
pub(super) struct Output {
    fd: BorrowedFd<'static>,
    /// The same pipe or terminal opened again, non-blocking; see [`reopen`].
    own: Option<OwnedFd>,
    queue: ByteQueue,
    watched: Watched,
    broken: bool,
}

impl Output {
    pub(super) fn new(fd: BorrowedFd<'static>) -> Self {
        Self {
            fd,
            own: reopen(fd),
            queue: ByteQueue::new(),
            watched: Watched::new(EventFlags::OUT),
            broken: false,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.queue.push(bytes);
        }
    }

    fn target(&self) -> BorrowedFd<'_> {
        self.own.as_ref().map_or(self.fd, AsFd::as_fd)
    }

    /// Writes what the reader takes now, and watches for more room if something is left.
    pub(super) fn write(&mut self, watch: &Watch) -> Written {
        let broke = !self.drain();
        if broke {
            self.broken = true;
            self.queue.clear();
        }
        let wanted = !self.queue.is_empty();
        let target = self.own.as_ref().map_or(self.fd, AsFd::as_fd);
        if self.watched.set(watch, target, wanted).is_err() {
            // Cannot happen but for lack of memory. Nothing would tell when there is room: give the output up.
            self.broken = true;
            self.queue.clear();
            return Written::Broken;
        }
        if broke { Written::Broken } else { Written::Fine }
    }

    /// False when nobody reads any more.
    fn drain(&mut self) -> bool {
        while !self.queue.is_empty() {
            if !self.is_writable() {
                return true;
            }
            let limit =
                if self.own.is_some() || self.watched.is_always_ready() { usize::MAX } else { SAFE_WRITE };
            let piece = &self.queue.peek()[..self.queue.len().min(limit)];
            match rustix::io::write(self.target(), piece) {
                Ok(count) => self.queue.consume(count),
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    fn is_writable(&self) -> bool {
        let target = self.target();
        let mut fds = [PollFd::from_borrowed_fd(target, PollFlags::OUT)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(ready) if ready > 0)
    }
}

/// Opens a pipe or terminal once more, so that only our writes are non-blocking and not those of every process
/// that shares the descriptor. Files keep their position and mode only in the descriptor we were given, and they do
/// not block; sockets cannot be opened.
fn reopen(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let kind = FileType::from_raw_mode(fstat(fd).ok()?.st_mode);
    if !matches!(kind, FileType::Fifo | FileType::CharacterDevice) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).ok()
}
