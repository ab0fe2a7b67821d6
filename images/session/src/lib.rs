//! How a command runs inside a machine: the protocol between perfvisor and the agent that is PID 1 there.
//!
//! One session is one byte stream: the VMM's own virtio-console port, or a Unix socket that QEMU joins to such a
//! port of the lab machine. Nothing here does I/O: bytes go in, bytes and events come out, so the VMM's event
//! loop, the lab launcher and the tests run the same code.
//!
//! * [`frame`]: a header and a bounded payload;
//! * [`message`]: what the frames mean;
//! * [`sync`]: how a new session begins on a stream that may still hold bytes of an older one;
//! * [`host`]: the host's side as a state machine, files, command, stdin credit and outcome.
//!
//! Exit status, the same for guests and the lab: a code is passed on, a death by signal `n` is `128 + n`, a
//! program that is not found 127, one that cannot be executed 126, and perfvisor's own failures 125.

pub mod byte_queue;
pub mod frame;
pub mod host;
pub mod message;
pub mod preamble;
mod protocol;
pub mod sync;

pub use byte_queue::ByteQueue;
pub use frame::ProtocolError;
pub use host::{Event, FileToSend, HostSession, Outcome};
pub use message::{
    ByteString, Exec, ExecError, ExitStatus, FileOffer, FileReply, Hello, Power, Stream, ToGuest, ToHost,
    WinSize,
};
pub use preamble::{NONCE_LEN, Nonce};
pub use protocol::{EXIT_OWN_FAILURE, VERSION};
pub use sync::{GuestReceiver, Received};
