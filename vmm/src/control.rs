//! The control socket: other commands ask a running machine.
//!
//! One request line, one answer line, both JSON. Each client has a thread of its own with time limits, so that a
//! client that says nothing or reads nothing holds up neither the machine nor other clients.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::dump::MachineDump;
use crate::vcpu::Remote;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest request line.
const REQUEST_MAX: u64 = 4096;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Dump,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Dump(MachineDump),
    Error(String),
}

/// Why a machine could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens.
    #[error("it does not answer ({0})")]
    Connect(io::Error),
    /// It is stopped, or busy with its start.
    #[error("it does not answer within {} s", (PATIENCE * 2).as_secs())]
    Silent,
    /// It stopped answering.
    #[error("it ended while it was asked")]
    Ended,
    /// It refused.
    #[error("{0}")]
    Refused(String),
    /// It speaks another language.
    #[error("it gave an answer of another version of perfvisor ({0})")]
    Answer(serde_json::Error),
}

/// What the control socket knows about its machine.
#[derive(Debug)]
pub struct Subject {
    /// The machine's name.
    pub name: String,
    /// When it started.
    pub started: Instant,
    /// Its vCPUs.
    pub vcpus: Vec<Remote>,
}

impl Subject {
    /// Ask every vCPU; they answer at the next moment they are outside the guest, to which they are kicked.
    pub fn dump(&self) -> Result<MachineDump, String> {
        let answers: Vec<_> = self.vcpus.iter().map(Remote::dump).collect();
        let vcpus = answers
            .into_iter()
            .enumerate()
            .map(|(i, answer)| {
                answer.recv_timeout(PATIENCE).map_err(|_| format!("vCPU {i} has ended or does not answer"))
            })
            .collect::<Result<_, _>>()?;
        Ok(self.with(vcpus))
    }

    /// The machine's dump made of its vCPUs'.
    pub fn with(&self, vcpus: Vec<crate::dump::VcpuDump>) -> MachineDump {
        MachineDump {
            name: self.name.clone(),
            pid: std::process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            vcpus,
        }
    }
}

/// Serve one client, in a thread of its own.
pub fn serve(client: UnixStream, subject: Arc<Subject>) {
    let serve = move || -> io::Result<()> {
        client.set_nonblocking(false)?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new((&client).take(REQUEST_MAX)).read_line(&mut line)?;
        let answer = match serde_json::from_str(&line) {
            Ok(Request::Dump) => subject.dump().map_or_else(Answer::Error, Answer::Dump),
            Err(e) => Answer::Error(format!("not a request of this version of perfvisor: {e}")),
        };
        let mut bytes = serde_json::to_vec(&answer)?;
        bytes.push(b'\n');
        (&client).write_all(&bytes)
    };
    // A client that cannot be served sees its connection close; that is answer enough.
    let _ = std::thread::Builder::new().name("control".to_owned()).spawn(serve);
}

/// Ask the machine behind `socket` for its dump.
pub fn ask_dump(socket: &Path) -> Result<MachineDump, Error> {
    let mut stream = UnixStream::connect(socket).map_err(Error::Connect)?;
    stream.set_read_timeout(Some(PATIENCE * 2)).map_err(Error::Connect)?;
    let mut request = serde_json::to_vec(&Request::Dump).map_err(Error::Answer)?;
    request.push(b'\n');
    stream.write_all(&request).map_err(|_| Error::Ended)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => Error::Silent,
        _ => Error::Ended,
    })?;
    if line.is_empty() {
        return Err(Error::Ended);
    }
    match serde_json::from_str(&line).map_err(Error::Answer)? {
        Answer::Dump(dump) => Ok(dump),
        Answer::Error(reason) => Err(Error::Refused(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Arc<Subject> {
        Arc::new(Subject { name: "vm".to_owned(), started: Instant::now(), vcpus: Vec::new() })
    }

    fn exchange(request: &[u8]) -> String {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        serve(theirs, subject());
        ours.write_all(request).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        ours.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_dump_is_answered_and_garbage_is_refused() {
        assert!(exchange(b"\"dump\"\n").starts_with("{\"dump\":{\"name\":\"vm\""));
        for garbage in [&b"\n"[..], b"{}", b"\"reboot\"\n", &[b'x'; 100]] {
            assert!(exchange(garbage).starts_with("{\"error\":"), "{garbage:?}");
        }
        // Longer than a request may be: refused, not read on.
        let mut long = b"\"".to_vec();
        long.resize(4096, b'y');
        assert!(exchange(&long).starts_with("{\"error\":"));
    }
}
