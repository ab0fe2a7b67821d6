//! perfvisor's standard output and standard error.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use session::ByteQueue;

use super::watch::{Watch, Watched};
use crate::reopen::reopen;

/// A pipe that polls as writable takes at least so much without blocking.
const SAFE_WRITE: usize = 4096;

/// What came of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Fine, though some may have to wait.
    Fine,
    /// No more can be written, for this reason; reported once.
    Broken(Errno),
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
        let drained = self.drain();
        if drained.is_err() {
            self.broken = true;
            self.queue.clear();
        }
        let wanted = !self.queue.is_empty();
        let target = self.own.as_ref().map_or(self.fd, AsFd::as_fd);
        if self.watched.set(watch, target, wanted).is_err() {
            // Cannot happen but for lack of memory. Nothing would tell when there is room: give the output up.
            self.broken = true;
            self.queue.clear();
            return Written::Broken(Errno::NOMEM);
        }
        drained.map_or_else(Written::Broken, |()| Written::Fine)
    }

    /// An error when no more can be written.
    fn drain(&mut self) -> Result<(), Errno> {
        while !self.queue.is_empty() {
            if !self.is_writable() {
                return Ok(());
            }
            let limit =
                if self.own.is_some() || self.watched.is_always_ready() { usize::MAX } else { SAFE_WRITE };
            let piece = &self.queue.peek()[..self.queue.len().min(limit)];
            match rustix::io::write(self.target(), piece) {
                Ok(count) => self.queue.consume(count),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn is_writable(&self) -> bool {
        let target = self.target();
        let mut fds = [PollFd::from_borrowed_fd(target, PollFlags::OUT)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(ready) if ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[allow(unsafe_code)]
    fn written_to(fd: impl IntoRawFd) -> Written {
        // SAFETY: the descriptor is open and, because nothing owns it any more, stays so.
        let fd = unsafe { BorrowedFd::borrow_raw(fd.into_raw_fd()) };
        let mut output = Output::new(fd);
        output.push(b"text");
        let written = output.write(&Watch::new().unwrap());
        assert!(output.is_empty());
        written
    }

    #[test]
    fn a_full_disk_is_told_from_a_reader_that_left() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        assert_eq!(written_to(full), Written::Broken(Errno::NOSPC));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(written_to(writer), Written::Broken(Errno::PIPE));
        assert_eq!(written_to(tempfile::tempfile().unwrap()), Written::Fine);
    }
}
