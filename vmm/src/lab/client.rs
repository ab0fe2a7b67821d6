//! One session with the lab machine: moves bytes, forwards signals, keeps time.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use session::Outcome;

use crate::guest_session::{Caught, GuestSession, Signals};
use crate::virtio::PortBackend;

/// A start that takes longer is worth a word.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

/// Most bytes read at once.
const READ_SIZE: usize = 64 << 10;

/// How attending a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The session is over.
    Outcome(Outcome),
    /// A signal came when there was no command to receive it (not yet, or no more while a slow reader takes the rest),
    /// or came again and again.
    Signal(i32),
    /// The machine hung up before its agent answered.
    HungUp,
    /// The agent did not answer in time.
    Timeout,
}

/// Attends the session until it is over.
pub(super) fn attend(
    mut stream: &UnixStream,
    session: &mut GuestSession,
    signals: &mut Signals,
    start_timeout: Duration,
) -> io::Result<End> {
    let mut progress = Progress::new();
    let deadline = Instant::now() + start_timeout;
    let mut buffer = vec![0; READ_SIZE];
    session.opened();
    loop {
        if !write_all_possible(stream, session)? | !read_once(&mut stream, session, &mut buffer)? {
            if session.is_waiting_for_agent() {
                return Ok(End::HungUp);
            }
            session.closed();
            if !session.is_over() {
                session.fail("the lab machine went down before the command ran");
            }
        }
        // Last before the wait: everything it asks depends on what was moved above.
        session.work();
        progress.show(session.is_waiting_for_agent());
        if let Some(outcome) = session.outcome() {
            return Ok(End::Outcome(outcome.clone()));
        }
        while let Some(signal) = signals.caught() {
            match signal {
                Caught::ForCommand(signal) if session.signal(signal) => {}
                Caught::ForCommand(signal) | Caught::ForPerfvisor(signal) => return Ok(End::Signal(signal)),
            }
        }
        if session.is_waiting_for_agent() && Instant::now() >= deadline {
            return Ok(End::Timeout);
        }
        wait(stream, session, signals, progress.next_change(session, deadline))?;
    }
}

/// Writes what the socket takes; false when the machine hung up.
fn write_all_possible(mut stream: &UnixStream, session: &mut GuestSession) -> io::Result<bool> {
    while !session.is_over() && !session.output().is_empty() {
        match stream.write(session.output()) {
            Ok(count) => session.consume_output(count),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads once, if there is room; false when the machine hung up.
fn read_once(stream: &mut &UnixStream, session: &mut GuestSession, buffer: &mut [u8]) -> io::Result<bool> {
    if session.is_over() || !session.wants_input() {
        return Ok(true);
    }
    match stream.read(buffer) {
        Ok(0) => Ok(false),
        Ok(count) => {
            session.input(&buffer[..count]);
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(true),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(error),
    }
}

fn wait(
    stream: &UnixStream,
    session: &GuestSession,
    signals: &Signals,
    until: Option<Instant>,
) -> io::Result<()> {
    let mut interest = PollFlags::empty();
    interest.set(PollFlags::IN, session.wants_input());
    interest.set(PollFlags::OUT, !session.output().is_empty());
    let mut fds = vec![PollFd::from_borrowed_fd(session.as_fd(), PollFlags::IN)];
    fds.extend(signals.pipes().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    // Without interest it would still report a hang-up, for ever, while a slow reader takes the last output.
    if !session.is_over() && !interest.is_empty() {
        fds.push(PollFd::new(stream, interest));
    }
    let timeout = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A line on the user's terminal while a start takes long.
struct Progress {
    begun: Instant,
    enabled: bool,
    shown: bool,
}

impl Progress {
    fn new() -> Self {
        Self { begun: Instant::now(), enabled: io::stderr().is_terminal(), shown: false }
    }

    fn show(&mut self, waiting: bool) {
        let due = self.enabled && waiting && self.begun.elapsed() >= PROGRESS_AFTER;
        if due && !self.shown {
            self.shown = true;
            eprint!("perfvisor: the lab machine is starting ...");
        } else if !waiting {
            self.clear();
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprint!("\r\x1b[K");
        }
    }

    /// When to look again though nothing happened.
    fn next_change(&self, session: &GuestSession, deadline: Instant) -> Option<Instant> {
        if !session.is_waiting_for_agent() {
            None
        } else if self.enabled && !self.shown {
            Some(deadline.min(self.begun + PROGRESS_AFTER))
        } else {
            Some(deadline)
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
