//! Messages and their frame kinds.
//!
//! Bulk data is raw; everything else is JSON, whose cost does not matter and which fails readably.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::byte_queue::ByteQueue;
use crate::frame::{DATA_CHUNK, Frame, ProtocolError, put_frame};
use crate::preamble::split_at_magic;
use crate::protocol::EXIT_OWN_FAILURE;

mod kind {
    pub(super) const PUT_FILE: u8 = 0x01;
    pub(super) const FILE_DATA: u8 = 0x02;
    pub(super) const FILE_END: u8 = 0x03;
    pub(super) const EXEC: u8 = 0x04;
    pub(super) const STDIN: u8 = 0x05;
    pub(super) const STDIN_EOF: u8 = 0x06;
    pub(super) const CLOSE_OUTPUT: u8 = 0x07;
    pub(super) const SIGNAL: u8 = 0x08;
    pub(super) const WIN_SIZE: u8 = 0x09;
    pub(super) const POWER: u8 = 0x0a;

    pub(super) const HELLO: u8 = 0x81;
    pub(super) const FILE_REPLY: u8 = 0x82;
    pub(super) const STARTED: u8 = 0x83;
    pub(super) const STDOUT: u8 = 0x84;
    pub(super) const STDERR: u8 = 0x85;
    pub(super) const EXIT: u8 = 0x86;
    pub(super) const EXEC_ERROR: u8 = 0x87;
    pub(super) const STDIN_CREDIT: u8 = 0x88;
    pub(super) const STDIN_CLOSED: u8 = 0x89;
    pub(super) const LOG: u8 = 0x8a;
    pub(super) const FAULT: u8 = 0x8b;
}

/// Bytes that are text nearly always: arguments, paths, environment. In JSON every byte is the character of the
/// same number, so that bytes which are not UTF-8 pass unharmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteString(pub Vec<u8>);

impl From<ByteString> for String {
    fn from(bytes: ByteString) -> Self {
        bytes.0.into_iter().map(char::from).collect()
    }
}

impl TryFrom<String> for ByteString {
    type Error = std::char::TryFromCharError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.chars().map(u8::try_from).collect::<Result<_, _>>().map(Self)
    }
}

impl From<&str> for ByteString {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

/// A file the host would like to be at `path`. The agent remembers the tags of the files it stored, so that a
/// binary that is there already is not sent again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOffer {
    /// Absolute path; missing directories are made.
    pub path: ByteString,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes.
    pub len: u64,
    /// Names the content, for instance by its hash. The agent only compares tags.
    pub tag: String,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WinSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program, looked up in PATH, and its arguments.
    pub argv: Vec<ByteString>,
    /// Added to the agent's default environment.
    pub env: Vec<(ByteString, ByteString)>,
    /// Working directory; root's home if absent.
    pub cwd: Option<ByteString>,
    /// Run on a terminal of this size; its output is all stdout then.
    pub tty: Option<WinSize>,
    /// User and group id; root if absent.
    pub uid: Option<u32>,
}

/// One of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What to do with the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// Power off.
    Off,
    /// Restart.
    Reboot,
    /// Stop without powering off.
    Halt,
}

/// The agent's first words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Session version.
    pub version: u32,
    /// Kernel release.
    pub kernel: String,
    /// Seconds since the machine started, when it answered.
    pub uptime: f64,
}

/// Answers to a file offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    /// It is there already.
    Have,
    /// Send it.
    Need,
    /// It arrived whole and is in place.
    Stored,
    /// It could not be stored, for this reason.
    Failed(String),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It exited.
    Code(u8),
    /// A signal killed it.
    Signal(u8),
}

impl ExitStatus {
    /// The exit status perfvisor passes on.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128u8.wrapping_add(signal),
        }
    }
}

/// Why a command did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecError {
    /// The system's error number.
    pub errno: i32,
    /// In words, with the program's name.
    pub message: String,
}

impl ExecError {
    /// The exit status perfvisor passes on: as shells do, 127 for "not found" and 126 for "cannot be executed".
    pub fn code(&self) -> u8 {
        const ENOENT: i32 = 2;
        const ENOEXEC: i32 = 8;
        const EACCES: i32 = 13;
        const ENOTDIR: i32 = 20;
        const EISDIR: i32 = 21;
        match self.errno {
            ENOENT | ENOTDIR => 127,
            EACCES | ENOEXEC | EISDIR => 126,
            _ => EXIT_OWN_FAILURE,
        }
    }
}

/// What the host sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToGuest {
    /// Offers a file; the agent answers with [`FileReply::Have`] or [`FileReply::Need`].
    PutFile(FileOffer),
    /// The next bytes of the offered file.
    FileData(Vec<u8>),
    /// The file is complete.
    FileEnd,
    /// Run this.
    Exec(Exec),
    /// Input for the program, within the credit.
    Stdin(Vec<u8>),
    /// No more input.
    StdinEof,
    /// Nobody reads this stream any more: the program shall meet a broken pipe.
    CloseOutput(Stream),
    /// Send this signal to the program's process group.
    Signal(i32),
    /// The terminal changed its size.
    WinSize(WinSize),
    /// Power off or restart the machine.
    Power(Power),
}

/// What the agent sends.
#[derive(Clone, Debug, PartialEq)]
pub enum ToHost {
    /// First message of a session.
    Hello(Hello),
    /// Answer to a file offer.
    File(FileReply),
    /// The program runs, under this process id.
    Started(u32),
    /// Output of the program.
    Output(Stream, Vec<u8>),
    /// The program ended; all its output was sent before.
    Exit(ExitStatus),
    /// The program did not start.
    ExecError(ExecError),
    /// The host may send this many more bytes of input.
    StdinCredit(u32),
    /// The program closed its input.
    StdinClosed,
    /// Something worth telling the user.
    Log(String),
    /// The agent met something that cannot be and ended the session.
    Fault(String),
}

fn json<T: Serialize>(out: &mut ByteQueue, kind: u8, value: &T) -> Result<(), ProtocolError> {
    let payload = serde_json::to_vec(value)
        .map_err(|error| ProtocolError::BadPayload { kind, reason: error.to_string() })?;
    put_frame(out, kind, &payload)
}

fn from_json<T: DeserializeOwned>(frame: &Frame) -> Result<T, ProtocolError> {
    serde_json::from_slice(&frame.payload)
        .map_err(|error| ProtocolError::BadPayload { kind: frame.kind, reason: error.to_string() })
}

/// Data in pieces of at most [`DATA_CHUNK`], cut also where the preamble of a session would appear in it: in a
/// valid stream towards the guest the preamble's magic never occurs.
fn data_to_guest(out: &mut ByteQueue, kind: u8, data: &[u8]) -> Result<(), ProtocolError> {
    data.chunks(DATA_CHUNK).flat_map(split_at_magic).try_for_each(|piece| put_frame(out, kind, piece))
}

fn data_to_host(out: &mut ByteQueue, kind: u8, data: &[u8]) -> Result<(), ProtocolError> {
    data.chunks(DATA_CHUNK).try_for_each(|piece| put_frame(out, kind, piece))
}

impl ToGuest {
    /// Appends the message as one or more frames.
    pub fn encode(&self, out: &mut ByteQueue) -> Result<(), ProtocolError> {
        match self {
            Self::PutFile(offer) => json(out, kind::PUT_FILE, offer),
            Self::FileData(data) => Self::encode_file_data(out, data),
            Self::FileEnd => put_frame(out, kind::FILE_END, &[]),
            Self::Exec(exec) => json(out, kind::EXEC, exec),
            Self::Stdin(data) => Self::encode_stdin(out, data),
            Self::StdinEof => put_frame(out, kind::STDIN_EOF, &[]),
            Self::CloseOutput(stream) => json(out, kind::CLOSE_OUTPUT, stream),
            Self::Signal(signal) => json(out, kind::SIGNAL, signal),
            Self::WinSize(size) => json(out, kind::WIN_SIZE, size),
            Self::Power(power) => json(out, kind::POWER, power),
        }
    }

    /// [`ToGuest::Stdin`] from borrowed data.
    pub fn encode_stdin(out: &mut ByteQueue, data: &[u8]) -> Result<(), ProtocolError> {
        data_to_guest(out, kind::STDIN, data)
    }

    /// [`ToGuest::FileData`] from borrowed data.
    pub fn encode_file_data(out: &mut ByteQueue, data: &[u8]) -> Result<(), ProtocolError> {
        data_to_guest(out, kind::FILE_DATA, data)
    }

    /// The meaning of a frame from the host.
    pub fn decode(frame: Frame) -> Result<Self, ProtocolError> {
        Ok(match frame.kind {
            kind::PUT_FILE => Self::PutFile(from_json(&frame)?),
            kind::FILE_DATA => Self::FileData(frame.payload),
            kind::FILE_END => Self::FileEnd,
            kind::EXEC => Self::Exec(from_json(&frame)?),
            kind::STDIN => Self::Stdin(frame.payload),
            kind::STDIN_EOF => Self::StdinEof,
            kind::CLOSE_OUTPUT => Self::CloseOutput(from_json(&frame)?),
            kind::SIGNAL => Self::Signal(from_json(&frame)?),
            kind::WIN_SIZE => Self::WinSize(from_json(&frame)?),
            kind::POWER => Self::Power(from_json(&frame)?),
            other => return Err(ProtocolError::UnknownKind(other)),
        })
    }
}

impl ToHost {
    /// Appends the message as one or more frames.
    pub fn encode(&self, out: &mut ByteQueue) -> Result<(), ProtocolError> {
        match self {
            Self::Hello(hello) => json(out, kind::HELLO, hello),
            Self::File(reply) => json(out, kind::FILE_REPLY, reply),
            Self::Started(pid) => json(out, kind::STARTED, pid),
            Self::Output(stream, data) => Self::encode_output(out, *stream, data),
            Self::Exit(status) => json(out, kind::EXIT, status),
            Self::ExecError(error) => json(out, kind::EXEC_ERROR, error),
            Self::StdinCredit(credit) => json(out, kind::STDIN_CREDIT, credit),
            Self::StdinClosed => put_frame(out, kind::STDIN_CLOSED, &[]),
            Self::Log(text) => json(out, kind::LOG, text),
            Self::Fault(text) => json(out, kind::FAULT, text),
        }
    }

    /// [`ToHost::Output`] from borrowed data.
    pub fn encode_output(out: &mut ByteQueue, stream: Stream, data: &[u8]) -> Result<(), ProtocolError> {
        let kind = match stream {
            Stream::Stdout => kind::STDOUT,
            Stream::Stderr => kind::STDERR,
        };
        data_to_host(out, kind, data)
    }

    /// The meaning of a frame from the agent.
    pub fn decode(frame: Frame) -> Result<Self, ProtocolError> {
        Ok(match frame.kind {
            kind::HELLO => Self::Hello(from_json(&frame)?),
            kind::FILE_REPLY => Self::File(from_json(&frame)?),
            kind::STARTED => Self::Started(from_json(&frame)?),
            kind::STDOUT => Self::Output(Stream::Stdout, frame.payload),
            kind::STDERR => Self::Output(Stream::Stderr, frame.payload),
            kind::EXIT => Self::Exit(from_json(&frame)?),
            kind::EXEC_ERROR => Self::ExecError(from_json(&frame)?),
            kind::STDIN_CREDIT => Self::StdinCredit(from_json(&frame)?),
            kind::STDIN_CLOSED => Self::StdinClosed,
            kind::LOG => Self::Log(from_json(&frame)?),
            kind::FAULT => Self::Fault(from_json(&frame)?),
            other => return Err(ProtocolError::UnknownKind(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::Decoder;

    #[test]
    fn exit_status_rule() {
        assert_eq!(ExitStatus::Code(7).code(), 7);
        assert_eq!(ExitStatus::Signal(9).code(), 137);
        let error = |errno| ExecError { errno, message: String::new() }.code();
        assert_eq!((error(2), error(13), error(12)), (127, 126, 125));
    }

    proptest! {
        #[test]
        fn any_argument_bytes_pass(argv in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let message = ToGuest::Exec(Exec { argv: argv.into_iter().map(ByteString).collect(), ..Exec::default() });
            let mut out = ByteQueue::new();
            message.encode(&mut out).unwrap();
            let mut decoder = Decoder::default();
            decoder.push(out.peek());
            let frame = decoder.next_frame().unwrap().unwrap();
            prop_assert_eq!(ToGuest::decode(frame).unwrap(), message);
        }

        #[test]
        fn decoding_never_panics(kind in any::<u8>(), payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ToGuest::decode(Frame { kind, payload: payload.clone() });
            let _ = ToHost::decode(Frame { kind, payload });
        }
    }
}
