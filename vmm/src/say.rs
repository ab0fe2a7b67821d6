//! What perfvisor itself says to its user.
//!
//! Unlike `println!` and `eprintln!`, nothing here panics when a standard stream takes no more, and nothing waits for ever for a
//! reader who stands still.

use std::fmt::{Display, Write as _};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::reopen::reopen;

/// How long a message waits for a reader.
const PATIENCE: Duration = Duration::from_secs(10);
/// A pipe that polls as writable takes at least so much without blocking, and as a whole.
const SAFE_WRITE: usize = 4096;

/// Standard error, for writes that do not block whoever else has it.
struct Errors {
    own: Option<OwnedFd>,
    socket: bool,
}

static ERRORS: OnceLock<Errors> = OnceLock::new();

/// Opens standard error once more, for a process that will be confined and then opens nothing. Before that, messages go to the
/// descriptor that all have.
pub(crate) fn prepare() {
    ERRORS.get_or_init(|| Errors { own: reopen(rustix::stdio::stderr()), ..Errors::shared() });
}

fn write(bytes: &[u8], patience: Duration) -> bool {
    match ERRORS.get() {
        Some(errors) => errors.write(bytes, patience),
        None => Errors::shared().write(bytes, patience),
    }
}

/// Write a line with this program's name to standard error. If that takes nothing, nobody is left to hear.
pub fn say(text: impl Display) {
    write(line(text).as_bytes(), PATIENCE);
}

/// The same where nothing may wait: false if the line is not taken now.
pub(crate) fn say_at_once(text: impl Display) -> bool {
    write_at_once(line(text).as_bytes())
}

/// The same for a signal handler, which has the line ready: this makes system calls only, takes no lock and allocates nothing.
pub(crate) fn write_at_once(line: &[u8]) -> bool {
    write(line, Duration::ZERO)
}

/// A message as it is shown. Some of it may be a guest's: that does not get to the terminal's own settings.
pub(crate) fn line(text: impl Display) -> String {
    let mut line = String::from("perfvisor: ");
    // Writing to a String cannot fail.
    let _ = write!(line, "{text}");
    let mut shown = String::with_capacity(line.len() + 1);
    for character in line.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            character if character.is_control() => shown.extend(character.escape_default()),
            character => shown.push(character),
        }
    }
    shown.push('\n');
    shown
}

impl Errors {
    fn shared() -> Self {
        let kind = fstat(rustix::stdio::stderr()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        Self { own: None, socket: kind == Ok(FileType::Socket) }
    }

    fn target(&self) -> BorrowedFd<'_> {
        self.own.as_ref().map_or(rustix::stdio::stderr(), AsFd::as_fd)
    }

    /// Not by std's handle, which has a lock: another thread may have it that waits for the same reader.
    fn write(&self, mut bytes: &[u8], patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while !bytes.is_empty() {
            if !self.takes(deadline) {
                return false;
            }
            let piece = &bytes[..bytes.len().min(SAFE_WRITE)];
            let written = if self.socket {
                send(self.target(), piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            } else {
                rustix::io::write(self.target(), piece)
            };
            match written {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
        true
    }

    fn takes(&self, deadline: Instant) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.target(), PollFlags::OUT)];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut fds, Some(&timeout)) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// Write to standard output. A reader that left has what it wanted, so that is no error.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("standard output"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_message_is_one_line_without_control_characters() {
        assert_eq!(line("a\tb\nc"), "perfvisor: a\tb\nc\n");
        assert_eq!(line("\x1b]0;title\x07"), "perfvisor: \\u{1b}]0;title\\u{7}\n");
    }

    #[test]
    fn a_reader_that_stands_still_is_not_waited_for() {
        for socket in [false, true] {
            let (mut reader, own): (Box<dyn Read>, OwnedFd) = if socket {
                let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
                (Box::new(reader), writer.into())
            } else {
                let (reader, writer) = std::io::pipe().unwrap();
                let own = reopen(writer.as_fd()).unwrap();
                (Box::new(reader), own)
            };
            let errors = Errors { own: Some(own), socket };
            let begun = Instant::now();
            let taken = (0..10_000).filter(|_| errors.write(&[b'x'; 100], Duration::ZERO)).count();
            assert!((1..10_000).contains(&taken), "{taken}");
            assert!(!errors.write(b"y", Duration::from_millis(50)) || socket);
            assert!(begun.elapsed() < Duration::from_secs(5));
            drop(errors);
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            assert!(bytes.len() >= 100 * taken);
        }
    }
}
