//! A command inside a machine, joined to perfvisor's own standard streams.
//!
//! [`GuestSession`] is what both users of the session protocol have in common: the VMM, whose bytes go through
//! its virtio console, and the lab launcher, whose bytes go through a socket of QEMU's. It waits for nothing:
//! poll [`GuestSession::as_fd`], call [`GuestSession::work`], move bytes.

mod command;
mod input;
mod output;
mod signals;
mod watch;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use session::{EXIT_OWN_FAILURE, Event, ExitStatus, HostSession, Nonce, Outcome, Stream};
use signal_hook::consts::SIGWINCH;

pub use command::{Command, CopiedFile, Terminal};
pub use signals::{Caught, Signals};

use crate::say::line;
use crate::terminal::{RawTerminal, terminal_size};
use crate::virtio::PortBackend;
use command::Prepared;
use input::Input;
use output::{Output, Written};
use watch::Watch;

/// While so much output waits for a slow reader, no more is taken from the machine.
const OUTPUT_AHEAD: usize = 256 << 10;

/// The session of one command.
#[derive(Debug)]
pub struct GuestSession {
    prepared: Prepared,
    /// None until the machine's agent can be spoken to.
    host: Option<HostSession>,
    watch: Watch,
    stdin: Input,
    stdout: Output,
    stderr: Output,
    /// Readable when the terminal changed its size.
    resized: Option<UnixStream>,
    raw: Option<RawTerminal>,
    /// The agent answered.
    answered: bool,
    /// The command runs, or ran.
    started: bool,
    outcome: Option<Outcome>,
    /// Output could not be written, for another reason than that nobody reads it.
    lost: bool,
}

impl GuestSession {
    /// Reads the files to copy and prepares the standard streams. Nothing is read from standard input before the
    /// command runs.
    pub fn new(command: Command) -> io::Result<Self> {
        let watch = Watch::new()?;
        let mut prepared = Prepared::new(command)?;
        let mut resized = None;
        if prepared.terminal {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(SIGWINCH, theirs)?;
            watch.add_readable(&ours)?;
            resized = Some(ours);
            prepared.exec.tty = Some(terminal_size());
        }
        Ok(Self {
            prepared,
            host: None,
            watch,
            stdin: Input::new(rustix::stdio::stdin()),
            stdout: Output::new(rustix::stdio::stdout()),
            stderr: Output::new(rustix::stdio::stderr()),
            resized,
            raw: None,
            answered: false,
            started: false,
            outcome: None,
            lost: false,
        })
    }

    /// How it ended, once all its output was written.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref().filter(|_| self.is_all_written())
    }

    /// True if no output waits for a slow reader.
    pub fn is_all_written(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty()
    }

    /// True once the command ended, though output may still wait for a slow reader.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    /// Sends the command a signal. False if it does not run; then the caller decides what the signal means.
    pub fn signal(&mut self, number: i32) -> bool {
        self.host.as_mut().is_some_and(|host| host.signal(number))
    }

    /// Ends the session for a reason of perfvisor's own.
    pub fn fail(&mut self, reason: impl Into<String>) {
        self.finish(Outcome::Failed(reason.into()));
    }

    /// True if not even the agent answered yet.
    pub fn is_waiting_for_agent(&self) -> bool {
        !self.answered && self.outcome.is_none()
    }

    fn finish(&mut self, outcome: Outcome) {
        // The terminal is restored before anybody prints why.
        self.raw = None;
        self.outcome.get_or_insert(outcome);
        self.admit_loss();
    }

    fn begin(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        if self.started {
            return self.fail("the machine restarted while the command ran");
        }
        let mut nonce = Nonce::default();
        match rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) if count == nonce.len() => {
                self.host =
                    Some(HostSession::new(&nonce, self.prepared.files.clone(), self.prepared.exec.clone()));
            }
            Ok(_) => self.fail("getrandom(2) returned too little"),
            Err(error) => self.fail(format!("getrandom(2): {error}")),
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.host.as_mut().and_then(HostSession::next_event) {
            match event {
                Event::Ready(_) => self.answered = true,
                Event::File { .. } => {}
                Event::Started(_) => self.command_started(),
                Event::Output(Stream::Stdout, bytes) => self.stdout.push(&bytes),
                Event::Output(Stream::Stderr, bytes) => self.stderr.push(&bytes),
                Event::Log(text) => self.stderr.push(line(text).as_bytes()),
                Event::Finished(outcome) => self.finish(outcome),
            }
        }
    }

    fn command_started(&mut self) {
        self.started = true;
        // Should the machine restart, the command is not started again, and its files are of no use.
        self.prepared.files.clear();
        if self.prepared.terminal {
            match RawTerminal::enter() {
                Ok(raw) => self.raw = Some(raw),
                Err(error) => self.stderr.push(format!("perfvisor: raw terminal: {error}\n").as_bytes()),
            }
        }
    }

    fn read_stdin(&mut self) {
        let Some(host) = &mut self.host else { return };
        self.stdin.read_into(host);
        let wanted = host.stdin_room() > 0;
        if let Err(error) = self.stdin.set_watched(&self.watch, wanted) {
            host.stdin_eof();
            self.stderr.push(format!("perfvisor: standard input: {error}\n").as_bytes());
        }
    }

    fn write_output(&mut self) {
        let written = self.stdout.write(&self.watch);
        if let Some(error) = self.closed_output(Stream::Stdout, written) {
            self.stderr.push(format!("perfvisor: standard output: {error}\n").as_bytes());
        }
        let written = self.stderr.write(&self.watch);
        self.closed_output(Stream::Stderr, written);
        self.admit_loss();
    }

    /// Tells the command when a stream takes no more. Returns why, unless its reader left: that is no loss.
    fn closed_output(&mut self, stream: Stream, written: Written) -> Option<Errno> {
        let Written::Broken(error) = written else { return None };
        if let Some(host) = &mut self.host {
            host.close_output(stream);
        }
        let lost = error != Errno::PIPE;
        self.lost |= lost;
        lost.then_some(error)
    }

    /// A command cannot know what became of its last output: it did not succeed if that was lost.
    fn admit_loss(&mut self) {
        if self.lost && matches!(self.outcome, Some(Outcome::Exited(status)) if status.code() == 0) {
            self.outcome = Some(Outcome::Exited(ExitStatus::Code(EXIT_OWN_FAILURE)));
        }
    }

    fn on_resize(&mut self) {
        let Some(resized) = &self.resized else { return };
        let mut any = false;
        while matches!(rustix::io::read(resized, &mut [0u8; 64]), Ok(count) if count > 0) {
            any = true;
        }
        if any {
            let size = terminal_size();
            self.prepared.exec.tty = Some(size);
            if let Some(host) = &mut self.host {
                host.win_size(size);
            }
        }
    }
}

impl AsFd for GuestSession {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

impl PortBackend for GuestSession {
    fn work_fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn work(&mut self) {
        self.take_events();
        self.on_resize();
        self.write_output();
        self.read_stdin();
        // Reading may have failed the session.
        self.take_events();
    }

    fn opened(&mut self) {
        self.begin();
    }

    fn closed(&mut self) {
        if self.started {
            self.fail("the machine went down or its agent died while the command ran");
        }
        self.host = None;
        // The terminal, the stream and whoever types there are free for others meanwhile.
        let _ = self.stdin.set_watched(&self.watch, false);
    }

    fn wants_input(&self) -> bool {
        self.stdout.len().max(self.stderr.len()) < OUTPUT_AHEAD
    }

    fn input(&mut self, bytes: &[u8]) {
        if let Some(host) = &mut self.host {
            host.feed(bytes);
            self.take_events();
        }
    }

    fn output(&self) -> &[u8] {
        self.host.as_ref().map_or(&[], HostSession::outgoing)
    }

    fn consume_output(&mut self, count: usize) {
        if let Some(host) = &mut self.host {
            host.consume_outgoing(count);
        }
    }
}
