//! The control socket: other commands ask a running machine.
//!
//! One request line, one answer line, both JSON. Each client has a thread of its own with time limits, so that a
//! client that says nothing or reads nothing holds up neither the machine nor other clients; and there are so many at once
//! and no more.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use serde::{Deserialize, Serialize};

use crate::confinement::{Confinement, Role};
use crate::dump::MachineDump;
use crate::vcpu::Remote;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take for its request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// Longest request line.
const REQUEST_MAX: usize = 4096;
/// Longest answer that a client takes: many times that of the most vCPUs.
const ANSWER_MAX: u64 = 64 << 20;
/// Clients at once.
const MAX_CLIENTS: usize = 16;

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
    /// It answers as many as it can.
    Busy,
}

impl Answer {
    fn line(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
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
    /// Too many ask it at once.
    #[error("it is busy with others that ask; try again")]
    Busy,
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
    /// Of its threads.
    pub confinement: Confinement,
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
            confinement: self.confinement.state().cloned(),
            vcpus,
        }
    }
}

/// A client, and how far it is.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    stage: AtomicU8,
}

/// What a client is waited for, or waits for: its request, the vCPUs' answers, that it takes them; or it was cut off.
const READING: u8 = 0;
const ASKING: u8 = 1;
const WRITING: u8 = 2;
const CUT_OFF: u8 = 3;

/// The clients that are served.
#[derive(Debug, Default)]
pub struct Clients(Vec<Weak<Client>>);

impl Clients {
    /// Serve one more. Where there are many already, the first of those that keep us waiting goes; one whose answer is being
    /// made does not, and if all are such the new one is refused.
    pub fn add(&mut self, stream: UnixStream, subject: &Arc<Subject>) {
        if let Err(reason) = check_peer(&stream) {
            return refuse(&stream, &Answer::Error(reason));
        }
        self.0.retain(|client| client.strong_count() > 0);
        if self.0.len() >= MAX_CLIENTS && !self.cut_off_one() || self.0.len() >= 2 * MAX_CLIENTS {
            return refuse(&stream, &Answer::Busy);
        }
        let client = Arc::new(Client { stream, stage: AtomicU8::new(READING) });
        self.0.push(Arc::downgrade(&client));
        serve(client, Arc::clone(subject));
    }

    fn cut_off_one(&self) -> bool {
        self.0.iter().filter_map(Weak::upgrade).any(|client| client.cut_off())
    }
}

impl Client {
    /// Whether it kept us waiting, and now does not any more.
    fn cut_off(&self) -> bool {
        let cut = [READING, WRITING].iter().any(|&stage| self.enter(stage, CUT_OFF));
        if cut {
            // Its thread is woken by this, and ends.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        cut
    }

    /// Go from one stage to the next; false if another thread was faster.
    fn enter(&self, from: u8, to: u8) -> bool {
        self.stage.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn serve(&self, subject: &Subject) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        let line = self.read_line(Instant::now() + REQUEST_PATIENCE)?;
        if !self.enter(READING, ASKING) {
            return Ok(());
        }
        let answer = match serde_json::from_slice(&line) {
            Ok(Request::Dump) => subject.dump().map_or_else(Answer::Error, Answer::Dump),
            Err(e) => Answer::Error(format!("not a request of this version of perfvisor: {e}")),
        };
        self.enter(ASKING, WRITING);
        self.write_all(&answer.line()?, Instant::now() + PATIENCE)
    }

    /// The request: a line, or what comes before the end, or as much as a request may be long.
    fn read_line(&self, deadline: Instant) -> io::Result<Vec<u8>> {
        let mut line = vec![0; REQUEST_MAX];
        let mut length = 0;
        while length < line.len() {
            self.stream.set_read_timeout(Some(left(deadline)?))?;
            match (&self.stream).read(&mut line[length..]) {
                Ok(0) => break,
                Ok(count) => {
                    let end = line[length..length + count].iter().position(|byte| *byte == b'\n');
                    length += end.unwrap_or(count);
                    if end.is_some() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        line.truncate(length);
        Ok(line)
    }

    fn write_all(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(left(deadline)?))?;
            match (&self.stream).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The time until `deadline`; an error when there is none.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The socket's mode keeps others out; this is for those who were given its descriptor, or the socket.
fn check_peer(stream: &UnixStream) -> Result<(), String> {
    let peer = socket_peercred(stream).map_err(|error| format!("it cannot tell who asks: {error}"))?.uid;
    match peer.is_root() || peer == getuid() {
        true => Ok(()),
        false => Err(format!("it is another user's; ask as user {} or as root", getuid().as_raw())),
    }
}

/// Tell a client why it is not served, without waiting for it.
fn refuse(mut stream: &UnixStream, answer: &Answer) {
    // The line fits into an empty socket; a client that did not leave it empty sees its connection close.
    if stream.set_nonblocking(true).is_ok()
        && let Ok(line) = answer.line()
    {
        let _ = stream.write(&line);
    }
}

/// Serve one client, in a thread of its own.
fn serve(client: Arc<Client>, subject: Arc<Subject>) {
    let serve = move || {
        subject.confinement.enter(Role::Control);
        client.serve(&subject)
    };
    // A client that cannot be served sees its connection close; that is answer enough.
    let _ = std::thread::Builder::new().name("control".to_owned()).spawn(serve);
}

/// Ask the machine behind `socket` for its dump. One that is busy is asked again.
pub fn ask_dump(socket: &Path) -> Result<MachineDump, Error> {
    const AGAIN_AFTER: Duration = Duration::from_millis(50);
    let begun = Instant::now();
    loop {
        match ask_dump_once(socket) {
            Err(Error::Busy) if begun.elapsed() < PATIENCE => std::thread::sleep(AGAIN_AFTER),
            answer => return answer,
        }
    }
}

fn ask_dump_once(socket: &Path) -> Result<MachineDump, Error> {
    let mut stream = UnixStream::connect(socket).map_err(Error::Connect)?;
    stream.set_read_timeout(Some(PATIENCE * 2)).map_err(Error::Connect)?;
    let mut request = serde_json::to_vec(&Request::Dump).map_err(Error::Answer)?;
    request.push(b'\n');
    // A machine that refuses does not wait for the request; what it says is there all the same.
    let _ = stream.write_all(&request);
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut line).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => Error::Silent,
        _ => Error::Ended,
    })?;
    if line.is_empty() {
        return Err(Error::Ended);
    }
    match serde_json::from_str(&line).map_err(Error::Answer)? {
        Answer::Dump(dump) => Ok(dump),
        Answer::Error(reason) => Err(Error::Refused(reason)),
        Answer::Busy => Err(Error::Busy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Arc<Subject> {
        Arc::new(Subject {
            name: "vm".to_owned(),
            started: Instant::now(),
            vcpus: Vec::new(),
            confinement: Confinement::none(),
        })
    }

    fn exchange(request: &[u8]) -> String {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        Clients::default().add(theirs, &subject());
        ours.write_all(request).unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        ours.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A client that has connected, and its end of the connection.
    fn connect(clients: &mut Clients, subject: &Arc<Subject>) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        clients.add(theirs, subject);
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours
    }

    #[test]
    fn those_who_say_nothing_give_way_to_others() {
        let (mut clients, subject) = (Clients::default(), subject());
        let silent: Vec<_> = (0..MAX_CLIENTS).map(|_| connect(&mut clients, &subject)).collect();
        let mut asks = connect(&mut clients, &subject);
        asks.write_all(b"\"dump\"\n").unwrap();
        let mut answer = String::new();
        asks.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("{\"dump\""), "{answer}");
        let gone = silent.iter().filter(|client| {
            let mut client: &UnixStream = client;
            client.set_nonblocking(true).unwrap();
            matches!(client.read(&mut [0]), Ok(0))
        });
        assert_eq!(gone.count(), 1, "the others still have their time");
        assert!(clients.0.len() <= 2 * MAX_CLIENTS);
    }

    #[test]
    fn when_all_wait_for_their_answers_others_get_busy() {
        let (mut clients, subject) = (Clients::default(), subject());
        let asking = |_| {
            let client = Client { stream: UnixStream::pair().unwrap().0, stage: AtomicU8::new(ASKING) };
            Arc::new(client)
        };
        let others: Vec<_> = (0..MAX_CLIENTS).map(asking).collect();
        clients.0.extend(others.iter().map(Arc::downgrade));
        let mut answer = String::new();
        connect(&mut clients, &subject).read_to_string(&mut answer).unwrap();
        assert!(answer.contains("busy"), "{answer}");
        drop(others);
        connect(&mut clients, &subject);
        assert_eq!(clients.0.len(), 1);
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
