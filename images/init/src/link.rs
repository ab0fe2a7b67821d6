//! The agent's end of the byte stream to the host.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::{Errno, ioctl_fionbio};

/// What carries the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A port of a virtio console: hosts come and go.
    Port,
    /// A connected socket: its end is final.
    Socket,
}

/// What a read gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// So many bytes.
    Data(usize),
    /// Nothing now.
    Empty,
    /// The host went away.
    Disconnected,
}

/// A non-blocking stream that notices when the host comes and goes.
#[derive(Debug)]
pub struct Link {
    stream: OwnedFd,
    carrier: Carrier,
    /// Watches the stream edge-triggered. A port without a host is permanently "hung up", and an ordinary poll for
    /// the next host would return at once for ever; an edge comes only when the kernel wakes the port's queue.
    watch: OwnedFd,
}

impl Link {
    /// Takes over a stream.
    pub fn new(stream: OwnedFd, carrier: Carrier) -> io::Result<Self> {
        // A blocking write to a virtio port spins in the kernel until the host took the buffer.
        ioctl_fionbio(&stream, true)?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edges =
            epoll::EventFlags::ET | epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::HUP;
        epoll::add(&watch, &stream, epoll::EventData::new_u64(0), edges)?;
        Ok(Self { stream, carrier, watch })
    }

    /// Waits until a host is there; false if none can come any more.
    pub fn wait_connected(&self) -> io::Result<bool> {
        loop {
            if !self.hung_up()? {
                return Ok(true);
            }
            if self.carrier == Carrier::Socket {
                return Ok(false);
            }
            let mut events =
                [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
            match epoll::wait(&self.watch, &mut events[..], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn hung_up(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
    }

    /// Reads what is there.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Read> {
        match rustix::io::read(&self.stream, buffer) {
            Ok(0) => Ok(Read::Disconnected),
            Ok(count) => Ok(Read::Data(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Read::Empty),
            Err(Errno::CONNRESET) => Ok(Read::Disconnected),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what the stream takes now. A host that is gone is noticed by reading.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::io::write(&self.stream, bytes) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
