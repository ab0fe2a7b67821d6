//! The host's side of a session as a state machine without I/O.
//!
//! Feed it what the port delivers, write what [`HostSession::outgoing`] holds, act on [`Event`]s. It sends the
//! files, then the command, keeps to the agent's input credit, and ends with exactly one [`Outcome`].

use std::collections::VecDeque;
use std::sync::Arc;

use crate::byte_queue::ByteQueue;
use crate::frame::{DATA_CHUNK, Decoder, ProtocolError};
use crate::message::{
    Exec, ExecError, ExitStatus, FileOffer, FileReply, Hello, Power, Stream, ToGuest, ToHost, WinSize,
};
use crate::preamble::{Nonce, preamble};
use crate::protocol::{EXIT_OWN_FAILURE, VERSION};
use crate::sync::EchoSearch;

/// So much is encoded ahead of what the port takes: enough to keep it busy, little enough that a signal is not
/// stuck behind it for long.
const AHEAD: usize = 4 * DATA_CHUNK;

/// A file for the machine.
#[derive(Clone, Debug)]
pub struct FileToSend {
    /// Where it goes, and what it is.
    pub offer: FileOffer,
    /// Its bytes; `offer.len` of them.
    pub content: Arc<[u8]>,
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program ran and ended.
    Exited(ExitStatus),
    /// The program did not start.
    NotStarted(ExecError),
    /// perfvisor, the agent or the machine failed, for this reason.
    Failed(String),
}

impl Outcome {
    /// The exit status to pass on.
    pub fn code(&self) -> u8 {
        match self {
            Self::Exited(status) => status.code(),
            Self::NotStarted(error) => error.code(),
            Self::Failed(_) => EXIT_OWN_FAILURE,
        }
    }
}

/// What happened, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The agent answered.
    Ready(Hello),
    /// A file is in place; `sent` is false if it was there already.
    File {
        /// Index in the list given to [`HostSession::new`].
        index: usize,
        /// Whether its bytes travelled.
        sent: bool,
    },
    /// The program runs, under this process id of its machine.
    Started(u32),
    /// Output of the program.
    Output(Stream, Vec<u8>),
    /// Something worth telling the user.
    Log(String),
    /// The end; no event follows.
    Finished(Outcome),
}

#[derive(Debug)]
enum State {
    /// Looking for the echo of the nonce.
    Syncing(EchoSearch),
    AwaitingHello,
    /// A file was offered.
    Offered(usize),
    /// Its bytes are on the way; so many were encoded.
    Sending(usize, usize),
    /// All bytes were encoded.
    AwaitingStored(usize),
    /// The command was sent.
    Starting,
    Running,
    Finished,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::Syncing(_) => "looking for the agent",
            Self::AwaitingHello => "waiting for the agent's greeting",
            Self::Offered(_) | Self::Sending(..) | Self::AwaitingStored(_) => "sending a file",
            Self::Starting => "starting the command",
            Self::Running => "the command runs",
            Self::Finished => "the session is over",
        }
    }
}

/// One session, from the preamble to the outcome.
#[derive(Debug)]
pub struct HostSession {
    state: State,
    files: Vec<FileToSend>,
    exec: Exec,
    decoder: Decoder,
    outgoing: ByteQueue,
    events: VecDeque<Event>,
    stdin_credit: usize,
    stdin_open: bool,
}

impl HostSession {
    /// A session that sends `files` and then runs `exec`. The nonce must be random.
    pub fn new(nonce: &Nonce, files: Vec<FileToSend>, exec: Exec) -> Self {
        let mut outgoing = ByteQueue::new();
        outgoing.push(&preamble(nonce));
        Self {
            state: State::Syncing(EchoSearch::new(nonce)),
            files,
            exec,
            decoder: Decoder::default(),
            outgoing,
            events: VecDeque::new(),
            stdin_credit: 0,
            stdin_open: true,
        }
    }

    /// Takes bytes that came from the port. What cannot be ends the session with [`Outcome::Failed`].
    pub fn feed(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Finished => return,
            State::Syncing(search) => {
                let Some(rest) = search.push(bytes) else { return };
                self.state = State::AwaitingHello;
                self.decoder.push(&rest);
            }
            _ => self.decoder.push(bytes),
        }
        if let Err(error) = self.decode_all() {
            self.fail(error.to_string());
        }
    }

    fn decode_all(&mut self) -> Result<(), ProtocolError> {
        while !self.is_finished() {
            let Some(frame) = self.decoder.next_frame()? else { break };
            self.handle(ToHost::decode(frame)?)?;
        }
        Ok(())
    }

    fn handle(&mut self, message: ToHost) -> Result<(), ProtocolError> {
        match (message, &self.state) {
            (ToHost::Log(text), _) => self.report(Event::Log(text)),
            (ToHost::Fault(reason), _) => {
                self.fail(format!("the agent ended the session: {reason}"));
                Ok(())
            }
            (ToHost::Hello(hello), State::AwaitingHello) => {
                if hello.version != VERSION {
                    return Err(ProtocolError::Version { theirs: hello.version });
                }
                self.report(Event::Ready(hello))?;
                self.offer_or_start(0)
            }
            (ToHost::File(FileReply::Have), &State::Offered(index)) => self.file_done(index, false),
            (ToHost::File(FileReply::Need), &State::Offered(index)) => {
                self.state = State::Sending(index, 0);
                self.send_file_data()
            }
            (ToHost::File(FileReply::Stored), &State::AwaitingStored(index)) => self.file_done(index, true),
            (
                ToHost::File(FileReply::Failed(reason)),
                &(State::Offered(index) | State::Sending(index, _) | State::AwaitingStored(index)),
            ) => {
                let path = String::from_utf8_lossy(&self.files[index].offer.path.0).into_owned();
                self.fail(format!("cannot put {path} into the machine: {reason}"));
                Ok(())
            }
            (ToHost::Started(pid), State::Starting) => {
                self.state = State::Running;
                self.report(Event::Started(pid))
            }
            (ToHost::ExecError(error), State::Starting) => {
                self.finish(Outcome::NotStarted(error));
                Ok(())
            }
            (ToHost::Output(stream, data), State::Running) => self.report(Event::Output(stream, data)),
            (ToHost::StdinCredit(credit), State::Starting | State::Running) => {
                self.stdin_credit = self.stdin_credit.saturating_add(credit as usize);
                Ok(())
            }
            (ToHost::StdinClosed, State::Running) => {
                self.stdin_open = false;
                Ok(())
            }
            (ToHost::Exit(status), State::Running) => {
                self.finish(Outcome::Exited(status));
                Ok(())
            }
            (message, _) => Err(self.unexpected(&message)),
        }
    }

    fn unexpected(&self, message: &ToHost) -> ProtocolError {
        let what = match message {
            ToHost::Log(_) => "message",
            ToHost::Fault(_) => "fault",
            ToHost::Hello(_) => "greeting",
            ToHost::File(_) => "answer about a file",
            ToHost::Started(_) | ToHost::ExecError(_) => "start of a command",
            ToHost::Output(..) => "output",
            ToHost::StdinCredit(_) | ToHost::StdinClosed => "word about input",
            ToHost::Exit(_) => "exit status",
        };
        ProtocolError::Unexpected { what, state: self.state.name() }
    }

    fn report(&mut self, event: Event) -> Result<(), ProtocolError> {
        self.events.push_back(event);
        Ok(())
    }

    fn offer_or_start(&mut self, index: usize) -> Result<(), ProtocolError> {
        match self.files.get(index) {
            Some(file) => {
                self.state = State::Offered(index);
                ToGuest::PutFile(file.offer.clone()).encode(&mut self.outgoing)
            }
            None => {
                self.state = State::Starting;
                ToGuest::Exec(std::mem::take(&mut self.exec)).encode(&mut self.outgoing)
            }
        }
    }

    fn file_done(&mut self, index: usize, sent: bool) -> Result<(), ProtocolError> {
        // Kernels and binaries are large; their bytes are not needed any more.
        self.files[index].content = Arc::from([]);
        self.report(Event::File { index, sent })?;
        self.offer_or_start(index + 1)
    }

    /// Encodes more of the file on the way, if the port has taken most of what was encoded before.
    fn send_file_data(&mut self) -> Result<(), ProtocolError> {
        while let State::Sending(index, sent) = self.state
            && self.outgoing.len() < AHEAD
        {
            let content = Arc::clone(&self.files[index].content);
            let end = content.len().min(sent + DATA_CHUNK);
            ToGuest::encode_file_data(&mut self.outgoing, &content[sent..end])?;
            self.state = State::Sending(index, end);
            if end == content.len() {
                ToGuest::FileEnd.encode(&mut self.outgoing)?;
                self.state = State::AwaitingStored(index);
            }
        }
        Ok(())
    }

    /// Ends the session for a reason of perfvisor's own, for instance because the machine is gone.
    pub fn fail(&mut self, reason: impl Into<String>) {
        self.finish(Outcome::Failed(reason.into()));
    }

    fn finish(&mut self, outcome: Outcome) {
        if !self.is_finished() {
            self.state = State::Finished;
            self.events.push_back(Event::Finished(outcome));
        }
    }

    /// True once the outcome is known.
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// True while the program runs.
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    /// True once the agent answered.
    pub fn is_synced(&self) -> bool {
        !matches!(self.state, State::Syncing(_))
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes for the port.
    pub fn outgoing(&self) -> &[u8] {
        self.outgoing.peek()
    }

    /// The port took `count` of [`Self::outgoing`].
    pub fn consume_outgoing(&mut self, count: usize) {
        self.outgoing.consume(count);
        if let Err(error) = self.send_file_data() {
            self.fail(error.to_string());
        }
    }

    /// True while the program's input is open at both ends. Read no input otherwise: it belongs to whoever reads
    /// the same stream after us.
    pub fn wants_stdin(&self) -> bool {
        self.is_running() && self.stdin_open
    }

    /// How much input may be sent now.
    pub fn stdin_room(&self) -> usize {
        if self.wants_stdin() { self.stdin_credit.min(AHEAD.saturating_sub(self.outgoing.len())) } else { 0 }
    }

    /// Sends input; no more than [`Self::stdin_room`].
    pub fn stdin(&mut self, data: &[u8]) {
        debug_assert!(data.len() <= self.stdin_room());
        self.stdin_credit = self.stdin_credit.saturating_sub(data.len());
        let sent = ToGuest::encode_stdin(&mut self.outgoing, data);
        self.fail_on_error(sent);
    }

    /// There is no more input.
    pub fn stdin_eof(&mut self) {
        if self.wants_stdin() {
            self.stdin_open = false;
            self.send(&ToGuest::StdinEof);
        }
    }

    /// Nobody reads this stream any more.
    pub fn close_output(&mut self, stream: Stream) {
        self.send_if_running(&ToGuest::CloseOutput(stream));
    }

    /// Sends a signal to the program; false if none runs.
    pub fn signal(&mut self, signal: i32) -> bool {
        self.send_if_running(&ToGuest::Signal(signal))
    }

    /// The terminal has another size.
    pub fn win_size(&mut self, size: WinSize) {
        // A program that is not started yet gets the size with the command.
        if matches!(self.state, State::Starting | State::Running) {
            self.send(&ToGuest::WinSize(size));
        } else if self.exec.tty.is_some() {
            self.exec.tty = Some(size);
        }
    }

    /// Asks the agent to power off or restart the machine, whatever runs.
    pub fn power(&mut self, power: Power) {
        let sent = ToGuest::Power(power).encode(&mut self.outgoing);
        self.fail_on_error(sent);
    }

    fn send_if_running(&mut self, message: &ToGuest) -> bool {
        let running = self.is_running();
        if running {
            self.send(message);
        }
        running
    }

    fn send(&mut self, message: &ToGuest) {
        let sent = message.encode(&mut self.outgoing);
        self.fail_on_error(sent);
    }

    fn fail_on_error(&mut self, result: Result<(), ProtocolError>) {
        if let Err(error) = result {
            self.fail(error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::preamble::echo;

    const NONCE: Nonce = [5; 16];

    fn hello() -> ToHost {
        ToHost::Hello(Hello { version: VERSION, kernel: "6.12".into(), uptime: 1.5 })
    }

    fn feed(session: &mut HostSession, message: ToHost) {
        let mut out = ByteQueue::new();
        message.encode(&mut out).unwrap();
        session.feed(out.peek());
    }

    fn ready(files: Vec<FileToSend>) -> HostSession {
        let mut session = HostSession::new(&NONCE, files, Exec::default());
        session.feed(&[&b"stale output"[..], &echo(&NONCE)].concat());
        session.consume_outgoing(usize::MAX);
        feed(&mut session, hello());
        assert!(matches!(session.next_event(), Some(Event::Ready(_))));
        session
    }

    fn running() -> HostSession {
        let mut session = ready(Vec::new());
        feed(&mut session, ToHost::Started(42));
        assert_eq!(session.next_event(), Some(Event::Started(42)));
        session.consume_outgoing(usize::MAX);
        session
    }

    fn sent(session: &mut HostSession) -> Vec<ToGuest> {
        let mut decoder = Decoder::default();
        let mut all = Vec::new();
        while !session.outgoing().is_empty() {
            let count = session.outgoing().len().min(10_000);
            decoder.push(&session.outgoing()[..count]);
            session.consume_outgoing(count);
            while let Some(frame) = decoder.next_frame().unwrap() {
                all.push(ToGuest::decode(frame).unwrap());
            }
        }
        all
    }

    #[test]
    fn runs_a_command() {
        let mut session = running();
        feed(&mut session, ToHost::Output(Stream::Stderr, b"oh".to_vec()));
        feed(&mut session, ToHost::Exit(ExitStatus::Signal(15)));
        assert_eq!(session.next_event(), Some(Event::Output(Stream::Stderr, b"oh".to_vec())));
        let Some(Event::Finished(outcome)) = session.next_event() else { panic!("no outcome") };
        assert_eq!(outcome.code(), 143);
        session.feed(b"anything");
        assert_eq!(session.next_event(), None);
    }

    #[test]
    fn sends_only_the_files_that_are_needed() {
        let file = |name: &str, len: usize| FileToSend {
            offer: FileOffer { path: name.into(), mode: 0o755, len: len as u64, tag: name.into() },
            content: vec![1; len].into(),
        };
        let mut session = ready(vec![file("/a", 10), file("/b", 1 << 20), file("/c", 0)]);
        assert!(matches!(&sent(&mut session)[..], [ToGuest::PutFile(offer)] if offer.tag == "/a"));
        feed(&mut session, ToHost::File(FileReply::Have));
        assert!(matches!(&sent(&mut session)[..], [ToGuest::PutFile(offer)] if offer.tag == "/b"));
        feed(&mut session, ToHost::File(FileReply::Need));
        assert!(session.outgoing().len() < 2 * AHEAD, "not all at once");
        let (data, ends): (Vec<_>, Vec<_>) =
            sent(&mut session).into_iter().partition(|message| matches!(message, ToGuest::FileData(_)));
        let total: usize =
            data.iter().map(|part| if let ToGuest::FileData(part) = part { part.len() } else { 0 }).sum();
        assert_eq!((total, ends), (1 << 20, vec![ToGuest::FileEnd]));
        feed(&mut session, ToHost::File(FileReply::Stored));
        sent(&mut session);
        feed(&mut session, ToHost::File(FileReply::Need));
        assert_eq!(sent(&mut session), [ToGuest::FileEnd]);
        feed(&mut session, ToHost::File(FileReply::Stored));
        assert!(matches!(&sent(&mut session)[..], [ToGuest::Exec(_)]));
        let done: Vec<_> = std::iter::from_fn(|| session.next_event()).collect();
        assert_eq!(done, [(0, false), (1, true), (2, true)].map(|(index, sent)| Event::File { index, sent }));
    }

    #[test]
    fn keeps_to_the_credit() {
        let mut session = running();
        assert_eq!(session.stdin_room(), 0);
        feed(&mut session, ToHost::StdinCredit(100));
        assert_eq!(session.stdin_room(), 100);
        session.stdin(&[0; 60]);
        assert_eq!(session.stdin_room(), 40);
        feed(&mut session, ToHost::StdinClosed);
        assert_eq!((session.stdin_room(), session.wants_stdin()), (0, false));
    }

    /// An agent that gives credit and asks for files without end gets no more from the host than the port takes.
    #[test]
    fn what_waits_for_the_port_is_bounded_whatever_the_agent_says() {
        let mut session = running();
        for _ in 0..10_000 {
            feed(&mut session, ToHost::StdinCredit(u32::MAX));
            let room = session.stdin_room();
            session.stdin(&vec![0; room]);
            assert!(session.outgoing().len() < 2 * AHEAD);
        }
        let offer = FileOffer { path: "/a".into(), mode: 0o755, len: 8 << 20, tag: "a".into() };
        let mut session = ready(vec![FileToSend { offer, content: vec![1; 8 << 20].into() }]);
        for _ in 0..1000 {
            feed(&mut session, ToHost::File(FileReply::Need));
            assert!(session.outgoing().len() < 2 * AHEAD);
        }
        assert!(session.is_finished(), "it asked twice");
    }

    #[test]
    fn refuses_another_version_and_nonsense() {
        let mut session = HostSession::new(&NONCE, Vec::new(), Exec::default());
        session.feed(&echo(&NONCE));
        feed(&mut session, ToHost::Hello(Hello { version: 99, kernel: String::new(), uptime: 0.0 }));
        assert!(
            matches!(session.next_event(), Some(Event::Finished(Outcome::Failed(why))) if why.contains("version 99"))
        );

        let mut session = ready(Vec::new());
        feed(&mut session, ToHost::Exit(ExitStatus::Code(0)));
        assert!(matches!(session.next_event(), Some(Event::Finished(Outcome::Failed(_)))));
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..500)) {
            let mut session = HostSession::new(&NONCE, Vec::new(), Exec::default());
            session.feed(&echo(&NONCE));
            session.feed(&noise);
            while session.next_event().is_some() {}
        }
    }
}
