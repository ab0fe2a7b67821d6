//! Serves one stream: sessions one after the other, each with files and commands.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use session::preamble::echo;
use session::{
    ByteQueue, Exec, FileOffer, FileReply, GuestReceiver, Hello, Power, ProtocolError, Received, Stream,
    ToGuest, ToHost, VERSION,
};

use crate::activity::{Activity, Presence};
use crate::files::{self, Arriving, Stored};
use crate::link::{Carrier, Link, Read};
use crate::program::{Fed, Program};
use crate::reaper::Reaper;

/// While so much waits for the host, the program's output is left in its pipes, where it slows the program down.
const OUTPUT_AHEAD: usize = 128 << 10;

/// Input the host may send ahead of the program.
const INPUT_AHEAD: u32 = 256 << 10;

/// Input taken by the program is made good to the host in portions of at least this size.
const CREDIT_STEP: u32 = INPUT_AHEAD / 8;

/// A pipe holds at most this much (/proc/sys/fs/pipe-max-size). Output is drained so far after a program's end; a
/// daemon that writes on for ever does not keep its session open.
const PIPE_MAX: usize = 1 << 20;

/// Most bytes read at once.
const READ_SIZE: usize = 64 << 10;

/// What all sessions of a machine share.
#[derive(Debug)]
pub struct Machine {
    /// Waits for programs.
    pub reaper: Reaper,
    /// Knows whether anybody is connected.
    pub activity: Activity,
    /// Remembers files.
    pub stored: Stored,
    /// Powers off or restarts.
    pub power: fn(Power),
}

/// Serves `stream` until no host can come any more.
pub fn serve(stream: OwnedFd, carrier: Carrier, machine: &Arc<Machine>) -> io::Result<()> {
    let mut agent = Agent {
        link: Link::new(stream, carrier)?,
        machine: Arc::clone(machine),
        receiver: GuestReceiver::default(),
        outgoing: ByteQueue::new(),
        buffer: vec![0; READ_SIZE],
        file: FileState::None,
        program: None,
        credit_due: 0,
        presence: None,
        echo_waits: false,
    };
    while agent.link.wait_connected()? {
        agent.presence = Some(machine.activity.enter());
        agent.serve_host()?;
        agent.host_left();
        agent.presence = None;
    }
    Ok(())
}

#[derive(Debug)]
enum FileState {
    None,
    /// Offered and needed; its data arrives.
    Arriving(Arriving),
    /// It could not be stored and the host knows; data still on the way is dropped.
    Failed,
}

#[derive(Debug)]
struct Agent {
    link: Link,
    machine: Arc<Machine>,
    receiver: GuestReceiver,
    outgoing: ByteQueue,
    buffer: Vec<u8>,
    file: FileState,
    program: Option<Program>,
    /// Input that the program took and that was not reported to the host yet.
    credit_due: u32,
    presence: Option<Presence>,
    /// The echo of a preamble waits in `outgoing`, and not a byte of it was written.
    echo_waits: bool,
}

/// What poll found ready.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    port: bool,
    exit: bool,
    stdin: bool,
    /// Nobody has the other end of the program's input.
    stdin_closed: bool,
    stdout: bool,
    stderr: bool,
}

impl Agent {
    /// Works until the host goes away.
    fn serve_host(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            // Messages first: a signal or the end of a session goes before more output.
            if ready.port && self.receive()? == Connected::No {
                return Ok(());
            }
            if ready.stdin {
                self.feed_program(ready.stdin_closed);
            }
            for (stream, ready) in [(Stream::Stdout, ready.stdout), (Stream::Stderr, ready.stderr)] {
                if ready {
                    self.relay_output(stream);
                }
            }
            if ready.exit {
                self.finish_program();
            }
            if !self.outgoing.is_empty() {
                let written = self.link.write(self.outgoing.peek())?;
                self.outgoing.consume(written);
                self.echo_waits &= written == 0;
            }
        }
    }

    /// The kernel announces the comings and goings of hosts from a work queue, but delivers data at once: the
    /// preamble of the next host can be here while that host still counts as absent. Its answer must not go the way
    /// of the old session. If that host left too, whoever follows skips the answer as noise.
    fn host_left(&mut self) {
        if !self.echo_waits {
            self.end_session();
        }
    }

    /// Waits for the next thing to do.
    fn wait(&self) -> io::Result<Ready> {
        #[derive(Clone, Copy)]
        enum Source {
            Port,
            Exit,
            Stdin,
            Output(Stream),
        }
        let mut sources = Vec::with_capacity(5);
        let mut fds = Vec::with_capacity(5);
        let port_out = if self.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        sources.push(Source::Port);
        fds.push(PollFd::new(&self.link, PollFlags::IN | port_out));
        if let Some(program) = &self.program {
            sources.push(Source::Exit);
            fds.push(PollFd::new(program.exit(), PollFlags::IN));
            if let Some(stdin) = program.stdin() {
                // Without pending input, for the error alone, which says that the program closed its end.
                let flags = if program.pending_input() == 0 { PollFlags::empty() } else { PollFlags::OUT };
                sources.push(Source::Stdin);
                fds.push(PollFd::new(stdin, flags));
            }
            if self.outgoing.len() < OUTPUT_AHEAD {
                for stream in [Stream::Stdout, Stream::Stderr] {
                    if let Some(pipe) = program.output(stream) {
                        sources.push(Source::Output(stream));
                        fds.push(PollFd::new(pipe, PollFlags::IN));
                    }
                }
            }
        }
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let mut ready = Ready::default();
        for (source, fd) in sources.iter().zip(&fds) {
            let found = !fd.revents().is_empty();
            match source {
                Source::Port => ready.port = found,
                Source::Exit => ready.exit = found,
                Source::Stdin => {
                    ready.stdin = found;
                    ready.stdin_closed = fd.revents().intersects(PollFlags::ERR | PollFlags::HUP);
                }
                Source::Output(Stream::Stdout) => ready.stdout = found,
                Source::Output(Stream::Stderr) => ready.stderr = found,
            }
        }
        Ok(ready)
    }

    fn receive(&mut self) -> io::Result<Connected> {
        match self.link.read(&mut self.buffer)? {
            Read::Disconnected => return Ok(Connected::No),
            Read::Empty => return Ok(Connected::Yes),
            Read::Data(count) => self.receiver.push(&self.buffer[..count]),
        }
        loop {
            match self.receiver.next_received() {
                Ok(None) => return Ok(Connected::Yes),
                Ok(Some(Received::Reset(nonce))) => {
                    self.end_session();
                    self.outgoing.push(&echo(&nonce));
                    self.echo_waits = true;
                    self.send(&ToHost::Hello(greeting()));
                }
                Ok(Some(Received::Message(message))) => self.handle(message),
                Err(error) => self.fault(&error),
            }
        }
    }

    /// The host broke the protocol. The receiver drops everything up to the next session by itself.
    fn fault(&mut self, error: &ProtocolError) {
        self.end_session();
        self.send(&ToHost::Fault(error.to_string()));
    }

    fn handle(&mut self, message: ToGuest) {
        match message {
            ToGuest::PutFile(offer) => self.offered(offer),
            ToGuest::FileData(data) => self.file_data(&data),
            ToGuest::FileEnd => self.file_end(),
            ToGuest::Exec(exec) => self.exec(&exec),
            ToGuest::Power(power) => (self.machine.power)(power),
            // What follows is for the program; it may have ended just before the host knows.
            ToGuest::Stdin(data) => self.input(&data),
            ToGuest::StdinEof => self.program.iter_mut().for_each(Program::end_input),
            ToGuest::CloseOutput(stream) => {
                self.program.iter_mut().for_each(|program| program.close_output(stream))
            }
            ToGuest::Signal(signal) => self.with_program(|program| program.signal(signal)),
            ToGuest::WinSize(size) => self.with_program(|program| program.resize(size)),
        }
    }

    fn with_program(&mut self, act: impl FnOnce(&Program) -> io::Result<()>) {
        if let Some(Err(error)) = self.program.as_ref().map(act) {
            self.send(&ToHost::Log(error.to_string()));
        }
    }

    fn offered(&mut self, offer: FileOffer) {
        self.file = FileState::None;
        if self.machine.stored.has(&offer) {
            return self.send(&ToHost::File(FileReply::Have));
        }
        let name = files::display(&offer);
        let unique = u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        match Arriving::begin(offer, unique) {
            Ok(arriving) => {
                self.file = FileState::Arriving(arriving);
                self.send(&ToHost::File(FileReply::Need));
            }
            Err(error) => self.file_failed(&format!("{name}: {error}")),
        }
    }

    fn file_data(&mut self, data: &[u8]) {
        if let FileState::Arriving(arriving) = &mut self.file
            && let Err(error) = arriving.write(data)
        {
            self.file_failed(&error.to_string());
        }
    }

    fn file_end(&mut self) {
        if let FileState::Arriving(arriving) = std::mem::replace(&mut self.file, FileState::None) {
            match arriving.finish(&self.machine.stored) {
                Ok(()) => self.send(&ToHost::File(FileReply::Stored)),
                Err(error) => self.file_failed(&error.to_string()),
            }
        }
    }

    fn file_failed(&mut self, reason: &str) {
        self.file = FileState::Failed;
        self.send(&ToHost::File(FileReply::Failed(reason.to_owned())));
    }

    fn exec(&mut self, exec: &Exec) {
        if self.program.is_some() {
            return self.fault(&ProtocolError::Unexpected { what: "command", state: "another command runs" });
        }
        match Program::start(exec, &self.machine.reaper) {
            Ok(program) => {
                self.send(&ToHost::Started(program.pid().as_raw_nonzero().get().unsigned_abs()));
                self.send(&ToHost::StdinCredit(INPUT_AHEAD));
                self.credit_due = 0;
                self.program = Some(program);
            }
            Err(error) => self.send(&ToHost::ExecError(error)),
        }
    }

    fn input(&mut self, data: &[u8]) {
        let Some(program) = &mut self.program else { return };
        if program.pending_input() + data.len() > INPUT_AHEAD as usize {
            return self.fault(&ProtocolError::Unexpected {
                what: "input",
                state: "the credit for input is used up",
            });
        }
        program.add_input(data);
    }

    fn feed_program(&mut self, closed: bool) {
        let Some(program) = &mut self.program else { return };
        if closed {
            program.close_input();
            return self.send(&ToHost::StdinClosed);
        }
        match program.feed() {
            Fed::Took(count) => {
                self.credit_due += count as u32;
                if self.credit_due >= CREDIT_STEP {
                    let credit = std::mem::take(&mut self.credit_due);
                    self.send(&ToHost::StdinCredit(credit));
                }
            }
            Fed::Closed => self.send(&ToHost::StdinClosed),
        }
    }

    /// Passes on one read of output; false when there is none now.
    fn relay_output(&mut self, stream: Stream) -> bool {
        let Some(program) = &mut self.program else { return false };
        let Some(count) = program.read_output(stream, &mut self.buffer) else { return false };
        let sent = ToHost::encode_output(&mut self.outgoing, stream, &self.buffer[..count]);
        debug_assert!(sent.is_ok(), "data frames are bounded");
        true
    }

    /// The program ended: its children die with it, what it printed goes to the host, and then its status.
    fn finish_program(&mut self) {
        let Some(program) = &self.program else { return };
        let Some(status) = program.status() else { return };
        program.kill_all();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let limit = self.outgoing.len() + PIPE_MAX;
            while self.outgoing.len() < limit && self.relay_output(stream) {}
        }
        self.program = None;
        self.send(&ToHost::Exit(status));
    }

    /// Forgets the session and kills what it started.
    fn end_session(&mut self) {
        self.program = None;
        self.file = FileState::None;
        self.outgoing.clear();
        self.echo_waits = false;
    }

    fn send(&mut self, message: &ToHost) {
        if let Err(error) = message.encode(&mut self.outgoing) {
            // Only a message longer than a frame, which none of ours is.
            eprintln!("perfvisor-init: cannot send {message:?}: {error}");
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connected {
    Yes,
    No,
}

fn greeting() -> Hello {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime =
        uptime.split_ascii_whitespace().next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0);
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Hello { version: VERSION, kernel, uptime }
}
