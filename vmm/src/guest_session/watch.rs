//! One descriptor that is readable when any of several has something to do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

/// An epoll instance, to be polled as a member of the caller's event loop.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    pub(super) fn add_readable(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(0), EventFlags::IN)?)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor that is watched at times. Out of the set it reports nothing at all; a member without interest
/// would still report errors and hang-ups, for ever.
#[derive(Debug)]
pub(super) struct Watched {
    flags: EventFlags,
    member: bool,
    /// epoll refuses regular files and /dev/null: they are always ready.
    always_ready: bool,
}

impl Watched {
    pub(super) fn new(flags: EventFlags) -> Self {
        Self { flags, member: false, always_ready: false }
    }

    pub(super) fn is_always_ready(&self) -> bool {
        self.always_ready
    }

    pub(super) fn set(&mut self, watch: &Watch, fd: BorrowedFd<'_>, wanted: bool) -> io::Result<()> {
        if self.always_ready || wanted == self.member {
            return Ok(());
        }
        let result = if wanted {
            epoll::add(&watch.0, fd, EventData::new_u64(0), self.flags)
        } else {
            epoll::delete(&watch.0, fd)
        };
        match result {
            Ok(()) => self.member = wanted,
            Err(Errno::PERM) if wanted => self.always_ready = true,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
