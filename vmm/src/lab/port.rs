//! A session port of the lab machine for one client.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::config::PORTS;
use super::machine::LabMachine;

/// A port that is ours as long as this lives: the lock goes with the process, however it ends.
#[derive(Debug)]
pub(super) struct Port {
    socket: PathBuf,
    _lock: File,
}

impl Port {
    /// Takes a free port.
    pub(super) fn take(machine: &LabMachine<'_>) -> io::Result<Self> {
        for number in 0..PORTS {
            let lock = machine.lock_file(&format!("session.{number}.lock"))?;
            match lock.try_lock() {
                Ok(()) => return Ok(Self { socket: machine.socket(number), _lock: lock }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::other(format!(
            "all {PORTS} sessions of the lab machine are in use; wait until one ends"
        )))
    }

    /// Connects; None if the machine just ended.
    pub(super) fn connect(&self) -> io::Result<Option<UnixStream>> {
        match UnixStream::connect(&self.socket) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                Ok(Some(stream))
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) =>
            {
                Ok(None)
            }
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", self.socket.display()))),
        }
    }
}
