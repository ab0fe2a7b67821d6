//! perfvisor's standard input.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use session::HostSession;

use super::watch::{Watch, Watched};

/// Most bytes read at once.
const READ_SIZE: usize = 32 << 10;

/// Reads standard input only as fast as the command takes it, and never sets it non-blocking: the terminal or
/// pipe is shared with other processes, which would inherit that.
#[derive(Debug)]
pub(super) struct Input {
    fd: BorrowedFd<'static>,
    watched: Watched,
    ended: bool,
}

impl Input {
    pub(super) fn new(fd: BorrowedFd<'static>) -> Self {
        Self { fd, watched: Watched::new(EventFlags::IN), ended: false }
    }

    /// Moves what is there now.
    pub(super) fn read_into(&mut self, host: &mut HostSession) {
        while !self.ended && host.stdin_room() > 0 && self.is_readable() {
            let mut buffer = [0; READ_SIZE];
            let room = host.stdin_room().min(READ_SIZE);
            match rustix::io::read(self.fd, &mut buffer[..room]) {
                Ok(count) if count > 0 => host.stdin(&buffer[..count]),
                Err(Errno::AGAIN | Errno::INTR) => return,
                // The end; or an error, such as EIO from the terminal of a job in the background: no more comes.
                _ => {
                    self.ended = true;
                    host.stdin_eof();
                }
            }
        }
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.fd, PollFlags::IN)];
        self.watched.is_always_ready()
            || matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(ready) if ready > 0)
    }

    pub(super) fn set_watched(&mut self, watch: &Watch, wanted: bool) -> io::Result<()> {
        self.watched.set(watch, self.fd, wanted && !self.ended)
    }
}
