//! The agent against [`HostSession`], over a socket pair. The agent is the real binary, so its reaping and
//! killing meet only its own processes.
#![allow(clippy::unwrap_used)] // A test that panics has failed, which is what it should do.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use session::{
    ByteString, Event, Exec, ExitStatus, FileOffer, FileToSend, HostSession, Outcome, Stream, WinSize,
};

const PATIENCE: Duration = Duration::from_secs(30);

struct Agent {
    child: Child,
    stream: UnixStream,
    sessions: u8,
}

impl Agent {
    /// As in the background of a shell, which ignores SIGINT: programs must not inherit that.
    fn start() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = Command::new("/bin/sh")
            .args(["-c", "trap '' INT; exec \"$0\" --serve-stdin", env!("CARGO_BIN_EXE_init")])
            .stdin(OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Self { child, stream: ours, sessions: 0 }
    }

    fn session(&mut self, files: Vec<FileToSend>, exec: Exec) -> Run<'_> {
        self.sessions += 1;
        let host = HostSession::new(&[self.sessions; 16], files, exec);
        Run { agent: self, host, stdin: Vec::new(), stdin_ends: true, seen: Seen::default() }
    }

    fn run(&mut self, script: &str) -> Seen {
        self.session(Vec::new(), shell(script)).finish()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
        self.child.wait().unwrap();
    }
}

#[derive(Default)]
struct Seen {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    files: Vec<bool>,
    logs: Vec<String>,
    outcome: Option<Outcome>,
}

impl Seen {
    fn code(&self) -> u8 {
        self.outcome.as_ref().unwrap().code()
    }

    fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }
}

struct Run<'a> {
    agent: &'a mut Agent,
    host: HostSession,
    stdin: Vec<u8>,
    stdin_ends: bool,
    seen: Seen,
}

impl Run<'_> {
    fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = bytes;
        self
    }

    fn keep_stdin_open(mut self) -> Self {
        self.stdin_ends = false;
        self
    }

    fn step(&mut self) {
        let room = self.host.stdin_room().min(self.stdin.len());
        if room > 0 {
            self.host.stdin(&self.stdin.drain(..room).collect::<Vec<_>>());
        }
        if self.stdin.is_empty() && self.stdin_ends {
            self.host.stdin_eof();
        }
        let mut stream = &self.agent.stream;
        if !self.host.outgoing().is_empty() {
            let piece = &self.host.outgoing()[..self.host.outgoing().len().min(4096)];
            let count = stream.write(piece).unwrap();
            self.host.consume_outgoing(count);
        }
        let mut buffer = [0; 16384];
        stream.set_nonblocking(!self.host.outgoing().is_empty()).unwrap();
        match stream.read(&mut buffer) {
            Ok(0) => self.host.fail("the agent is gone"),
            Ok(count) => self.host.feed(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
        stream.set_nonblocking(false).unwrap();
        while let Some(event) = self.host.next_event() {
            match event {
                Event::Output(Stream::Stdout, data) => self.seen.stdout.extend(data),
                Event::Output(Stream::Stderr, data) => self.seen.stderr.extend(data),
                Event::File { sent, .. } => self.seen.files.push(sent),
                Event::Log(text) => self.seen.logs.push(text),
                Event::Finished(outcome) => self.seen.outcome = Some(outcome),
                Event::Ready(_) | Event::Started(_) => {}
            }
        }
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "nothing happens; stdout so far {:?}", self.seen.stdout.len());
            self.step();
        }
    }

    fn until_printed(&mut self, text: &str) {
        self.until(|run| String::from_utf8_lossy(&run.seen.stdout).contains(text));
    }

    fn finish(mut self) -> Seen {
        self.until(|run| run.seen.outcome.is_some());
        self.seen
    }
}

fn shell(script: &str) -> Exec {
    Exec { argv: ["/bin/sh", "-c", script].map(ByteString::from).to_vec(), ..Exec::default() }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !matches!(stat.rsplit(") ").next(), Some(rest) if rest.starts_with('Z')))
}

#[test]
fn exit_statuses_and_streams() {
    let mut agent = Agent::start();
    let seen = agent.run("echo out; echo err >&2; exit 7");
    assert_eq!((seen.stdout(), &seen.stderr[..], seen.code()), ("out\n", &b"err\n"[..], 7));
    let seen = agent.run("kill -9 $$");
    assert_eq!(seen.outcome, Some(Outcome::Exited(ExitStatus::Signal(9))));
    assert_eq!(seen.code(), 137);
    assert_eq!(
        agent.session(Vec::new(), Exec { argv: vec!["nonesuch".into()], ..Exec::default() }).finish().code(),
        127
    );
    assert_eq!(
        agent
            .session(Vec::new(), Exec { argv: vec!["/etc/passwd".into()], ..Exec::default() })
            .finish()
            .code(),
        126
    );
    assert_eq!(agent.session(Vec::new(), Exec::default()).finish().code(), 125);
    let nowhere = Exec { cwd: Some("/nowhere".into()), ..shell("true") };
    let seen = agent.session(Vec::new(), nowhere).finish();
    assert!(matches!(&seen.outcome, Some(Outcome::NotStarted(error)) if error.message.contains("/nowhere")));
    assert_eq!(seen.code(), 125);
}

#[test]
fn environment_directory_and_user() {
    let mut agent = Agent::start();
    let exec = Exec {
        env: vec![("GREETING".into(), ByteString(b"\xffhi".to_vec()))],
        cwd: Some("/tmp".into()),
        uid: Some(12345),
        ..shell("printf %s \"$GREETING|$PWD|$HOME|\"; id -u; ps -o pid= -o sid= -o pgid= -p $$ | tr -s ' '")
    };
    let seen = agent.session(Vec::new(), exec).finish();
    assert!(
        seen.stdout.starts_with(b"\xffhi|/tmp|/root|12345\n"),
        "{:?}",
        String::from_utf8_lossy(&seen.stdout)
    );
}

#[test]
fn ten_megabytes_out() {
    let seen = Agent::start().run("head -c 10000000 /dev/zero");
    assert_eq!((seen.stdout.len(), seen.code()), (10_000_000, 0));
}

#[test]
fn ten_megabytes_through_cat() {
    let input = pattern(10_000_000);
    let seen = Agent::start().session(Vec::new(), shell("cat")).stdin(input.clone()).finish();
    assert!(seen.stdout == input);
    assert_eq!(seen.code(), 0);
}

#[test]
fn unread_input_blocks_nothing() {
    let mut agent = Agent::start();
    let mut run = agent
        .session(Vec::new(), shell("trap 'echo got it; exit 3' TERM; echo go; while :; do sleep 0.05; done"));
    run = run.stdin(vec![b'x'; 5_000_000]);
    run.until_printed("go");
    run.until(|run| run.host.stdin_room() == 0);
    assert!(run.host.signal(15));
    let seen = run.finish();
    assert_eq!((seen.stdout(), seen.code()), ("go\ngot it\n", 3));
}

#[test]
fn closed_input_and_closed_output() {
    let mut agent = Agent::start();
    let mut run = agent.session(Vec::new(), shell("exec <&-; echo closed; sleep 60")).keep_stdin_open();
    run.until(|run| run.host.is_running() && !run.host.wants_stdin());
    run.host.signal(9);
    assert_eq!(run.finish().code(), 137);

    let mut run =
        agent.session(Vec::new(), Exec { argv: vec!["yes".into()], ..Exec::default() }).keep_stdin_open();
    run.until_printed("y");
    run.host.close_output(Stream::Stdout);
    assert_eq!(run.finish().code(), 128 + 13, "SIGPIPE");
}

#[test]
fn a_terminal() {
    let mut agent = Agent::start();
    let exec = Exec {
        tty: Some(WinSize { rows: 33, cols: 99 }),
        ..shell(
            "stty size; test -t 0 && test -t 2 && echo tty; trap 'stty size; exit 5' WINCH; echo go; read line",
        )
    };
    let mut run = agent.session(Vec::new(), exec).keep_stdin_open();
    run.until_printed("go");
    run.host.win_size(WinSize { rows: 10, cols: 20 });
    let seen = run.finish();
    assert_eq!((seen.stdout(), seen.code()), ("33 99\r\ntty\r\ngo\r\n10 20\r\n", 5));

    // The interrupt character reaches the foreground process group, and so does a signal sent by the host.
    // Waiting in a builtin: a shell that is interrupted while it starts a program may lose the signal.
    let script = "trap 'exit 9' INT; echo go; read line";
    let exec = Exec { tty: Some(WinSize { rows: 1, cols: 1 }), ..shell(script) };
    let mut run = agent.session(Vec::new(), exec.clone()).keep_stdin_open();
    run.until_printed("go");
    run.stdin = vec![3];
    assert_eq!(run.finish().code(), 9);
    let mut run = agent.session(Vec::new(), exec).keep_stdin_open();
    run.until_printed("go");
    run.host.signal(15);
    assert_eq!(run.finish().code(), 143);
    let exec = Exec { tty: Some(WinSize { rows: 1, cols: 1 }), ..shell("cat") };
    let seen = agent.session(Vec::new(), exec).stdin(b"hi\n".to_vec()).finish();
    assert_eq!((seen.stdout(), seen.code()), ("hi\r\nhi\r\n", 0), "the end of input ends cat");
}

#[test]
fn files_are_sent_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bin/tool");
    let script = b"#!/bin/sh\necho I am $0\n".to_vec();
    let file = |tag: &str, content: Vec<u8>| FileToSend {
        offer: FileOffer {
            path: path.to_str().unwrap().into(),
            mode: 0o755,
            len: content.len() as u64,
            tag: tag.into(),
        },
        content: content.into(),
    };
    let mut agent = Agent::start();
    let exec = Exec { argv: vec![path.to_str().unwrap().into()], ..Exec::default() };
    let seen = agent.session(vec![file("1", script.clone())], exec.clone()).finish();
    assert_eq!((seen.stdout(), &seen.files[..]), (&*format!("I am {}\n", path.display()), &[true][..]));
    let seen = agent.session(vec![file("1", script)], exec).finish();
    assert_eq!((seen.code(), &seen.files[..]), (0, &[false][..]));
    let big = pattern(3_000_000);
    let seen = agent.session(vec![file("2", big.clone())], shell("true")).finish();
    assert_eq!((seen.code(), &seen.files[..]), (0, &[true][..]));
    assert!(std::fs::read(&path).unwrap() == big);

    let mut wrong = file("3", vec![0; 100]);
    wrong.offer.path = "/proc/nothing/here".into();
    let seen = agent.session(vec![wrong], shell("true")).finish();
    assert!(
        matches!(&seen.outcome, Some(Outcome::Failed(why)) if why.contains("/proc/nothing/here")),
        "{:?}",
        seen.outcome
    );
}

#[test]
fn a_new_session_ends_the_old_one() {
    let mut agent = Agent::start();
    let mut run =
        agent.session(Vec::new(), shell("sleep 1000 & echo $! .; yes >/dev/null")).keep_stdin_open();
    run.until_printed(".");
    let sleeper = run.seen.stdout().split(' ').next().unwrap().to_owned();
    assert!(alive(&sleeper));
    // A client that dies in the middle of a frame, with output still on the way.
    run.until(|run| run.host.stdin_room() > 1000);
    run.host.stdin(&[0xff; 1000]);
    let half = run.host.outgoing()[..500].to_vec();
    run.agent.stream.write_all(&half).unwrap();
    let seen = agent.run("echo fresh");
    assert_eq!((seen.stdout(), seen.code()), ("fresh\n", 0));
    assert!(!alive(&sleeper));
}

#[test]
fn what_a_command_leaves_behind_dies_with_it() {
    let mut agent = Agent::start();
    let seen = agent.run("sleep 1000 & echo $!");
    assert_eq!(seen.code(), 0);
    assert!(!alive(seen.stdout().trim()));
    let seen =
        agent.run("setsid sleep 1000 >/dev/null 2>&1 & sleep 0.2; pgrep -n -f 'sleep 1000' || true; echo");
    let daemon = seen.stdout().lines().next().unwrap_or_default().to_owned();
    if !daemon.is_empty() {
        assert!(alive(&daemon), "a program that made its own session is left alone");
        Command::new("kill").arg(&daemon).status().unwrap();
    }
}

#[test]
fn nonsense_is_answered_and_the_next_session_works() {
    let mut agent = Agent::start();
    agent.stream.write_all(&session::preamble::preamble(&[99; 16])).unwrap();
    agent.stream.write_all(&[0xee; 5000]).unwrap();
    let seen = agent.run("echo fine");
    assert_eq!((seen.stdout(), seen.code()), ("fine\n", 0));
}
