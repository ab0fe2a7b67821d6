//! The command of a session: started, fed, listened to, signalled.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use nix::sys::signal::{self, SigHandler, SigSet};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};
use session::{ByteQueue, ByteString, Exec, ExecError, ExitStatus, Stream, WinSize};

use crate::processes::kill_session;
use crate::reaper::{Exit, Reaper};

/// The end-of-file character of a terminal in its default settings (control-D).
const VEOF: u8 = 4;

/// A running program.
#[derive(Debug)]
pub struct Program {
    pid: Pid,
    exit: Arc<Exit>,
    stdin: Option<OwnedFd>,
    /// Input the program did not take yet; the credit given to the host bounds it.
    input: ByteQueue,
    input_ended: bool,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    terminal: Option<OwnedFd>,
}

/// What came of a write to the program's input.
#[derive(Debug, PartialEq, Eq)]
pub enum Fed {
    /// It took so many bytes.
    Took(usize),
    /// It closed its input; nothing more will be read.
    Closed,
}

fn os(bytes: &ByteString) -> OsString {
    OsString::from_vec(bytes.0.clone())
}

fn exec_error(program: &OsStr, error: &io::Error) -> ExecError {
    ExecError {
        errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        message: format!("{}: {error}", program.to_string_lossy()),
    }
}

/// A file that was just stored may be "busy" for an instant: a program that another session starts at this moment has
/// our descriptor of it until it executes.
fn spawn(command: &mut Command, reaper: &Reaper) -> io::Result<(Pid, Arc<Exit>)> {
    const TRIES: u32 = 50;
    for _ in 1..TRIES {
        match reaper.spawn(command) {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            result => return result,
        }
    }
    reaper.spawn(command)
}

impl Program {
    /// Starts it, in a session and process group of its own.
    pub fn start(exec: &Exec, reaper: &Reaper) -> Result<Self, ExecError> {
        let Some(program) = exec.argv.first().map(os) else {
            return Err(ExecError {
                errno: Errno::INVAL.raw_os_error(),
                message: "the command is empty".into(),
            });
        };
        let home = if Path::new("/root").is_dir() { "/root" } else { "/" };
        let cwd = exec.cwd.as_ref().map_or_else(|| OsString::from(home), os);
        // Asked first, because a start that fails for a missing directory looks like a missing program.
        if let Err(error) = std::fs::read_dir(&cwd) {
            return Err(ExecError {
                errno: Errno::INVAL.raw_os_error(),
                message: format!("working directory {}: {error}", cwd.to_string_lossy()),
            });
        }
        let mut command = Command::new(&program);
        command
            .args(exec.argv[1..].iter().map(os))
            .env_clear()
            .envs([
                ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
                ("HOME", home),
                ("SHELL", "/bin/sh"),
                ("USER", "root"),
                ("LOGNAME", "root"),
                ("LANG", "C.UTF-8"),
                ("TERM", "linux"),
            ])
            .envs(exec.env.iter().map(|(name, value)| (os(name), os(value))))
            .current_dir(cwd);
        if let Some(uid) = exec.uid {
            command.uid(uid).gid(uid);
        }
        Self::launch(&mut command, exec.tty, reaper).map_err(|error| exec_error(&program, &error))
    }

    fn launch(command: &mut Command, tty: Option<WinSize>, reaper: &Reaper) -> io::Result<Self> {
        let (stdin, stdout, stderr, terminal);
        if let Some(size) = tty {
            let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
            grantpt(&master)?;
            unlockpt(&master)?;
            tcsetwinsize(&master, winsize(size))?;
            let slave =
                ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
            command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
            (stdin, stdout, stderr) = (master.try_clone()?, master.try_clone()?, None);
            terminal = Some(master);
        } else {
            let (input, output, errors) = (
                pipe_with(PipeFlags::CLOEXEC)?,
                pipe_with(PipeFlags::CLOEXEC)?,
                pipe_with(PipeFlags::CLOEXEC)?,
            );
            command.stdin(input.0).stdout(output.1).stderr(errors.1);
            (stdin, stdout, stderr, terminal) = (input.1, output.0, Some(errors.0), None);
        }
        for end in [Some(&stdin), Some(&stdout), stderr.as_ref()].into_iter().flatten() {
            ioctl_fionbio(end, true)?;
        }
        own_session(command, tty.is_some());
        let started = spawn(command, reaper);
        // Our copies of the program's ends would keep its pipes open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (pid, exit) = started?;
        Ok(Self {
            pid,
            exit,
            stdin: Some(stdin),
            input: ByteQueue::new(),
            input_ended: false,
            stdout: Some(stdout),
            stderr,
            terminal,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Readable when it ended.
    pub fn exit(&self) -> &Exit {
        &self.exit
    }

    /// Its status, if it ended.
    pub fn status(&self) -> Option<ExitStatus> {
        self.exit.status()
    }

    /// The pipe to its input, while that is open.
    pub fn stdin(&self) -> Option<&OwnedFd> {
        self.stdin.as_ref()
    }

    /// The pipe from one of its output streams, while that is open.
    pub fn output(&self, stream: Stream) -> Option<&OwnedFd> {
        match stream {
            Stream::Stdout => self.stdout.as_ref(),
            Stream::Stderr => self.stderr.as_ref(),
        }
    }

    /// Input that waits.
    pub fn pending_input(&self) -> usize {
        self.input.len()
    }

    /// Adds input.
    pub fn add_input(&mut self, data: &[u8]) {
        if self.stdin.is_some() && !self.input_ended {
            self.input.push(data);
        }
    }

    /// No more input follows.
    pub fn end_input(&mut self) {
        if self.input_ended {
            return;
        }
        self.input_ended = true;
        if self.terminal.is_some() {
            self.input.push(&[VEOF]);
        }
        self.close_finished_input();
    }

    fn close_finished_input(&mut self) {
        if self.input_ended && self.input.is_empty() {
            self.stdin = None;
        }
    }

    /// Gives the program as much input as it takes now.
    pub fn feed(&mut self) -> Fed {
        let Some(stdin) = &self.stdin else { return Fed::Closed };
        if self.input.is_empty() {
            return Fed::Took(0);
        }
        match rustix::io::write(stdin, self.input.peek()) {
            Ok(count) => {
                self.input.consume(count);
                self.close_finished_input();
                Fed::Took(count)
            }
            Err(Errno::AGAIN | Errno::INTR) => Fed::Took(0),
            Err(_) => {
                self.close_input();
                Fed::Closed
            }
        }
    }

    /// Forgets the input: nobody reads it.
    pub fn close_input(&mut self) {
        self.stdin = None;
        self.input.clear();
    }

    /// Reads output that is there; None if there is none now. At the end of a stream its pipe is closed.
    pub fn read_output(&mut self, stream: Stream, buffer: &mut [u8]) -> Option<usize> {
        match rustix::io::read(self.output(stream)?, buffer) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            Ok(count) if count > 0 => Some(count),
            // A terminal that nobody has open any more reads as EIO.
            _ => {
                self.close_output(stream);
                None
            }
        }
    }

    /// Lets the program meet a broken pipe (or a hang-up, on a terminal).
    pub fn close_output(&mut self, stream: Stream) {
        match stream {
            Stream::Stdout => self.stdout = None,
            Stream::Stderr => self.stderr = None,
        }
    }

    /// Signals its process group; on a terminal the one in the foreground, as the terminal itself would.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        let signal = Signal::from_named_raw(number)
            .ok_or_else(|| io::Error::other(format!("there is no signal {number}")))?;
        let group = self.terminal.as_ref().and_then(|terminal| tcgetpgrp(terminal).ok()).unwrap_or(self.pid);
        match kill_process_group(group, signal) {
            // It ended just now.
            Err(Errno::SRCH) => Ok(()),
            result => Ok(result?),
        }
    }

    /// Gives its terminal another size.
    pub fn resize(&self, size: WinSize) -> io::Result<()> {
        match &self.terminal {
            Some(terminal) => Ok(tcsetwinsize(terminal, winsize(size))?),
            None => Ok(()),
        }
    }

    /// Kills it and all it started.
    pub fn kill_all(&self) {
        kill_session(self.pid);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn winsize(size: WinSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Makes the program the leader of a session, with its stdin as controlling terminal if it is one, and lets it
/// receive all signals: the agent takes its own by a signalfd, and a blocked mask would be inherited, as is a signal that
/// whoever started the agent ignored (SIGINT, for one in the background of a shell).
#[allow(unsafe_code)] // CommandExt::pre_exec is the only way to a controlling terminal.
fn own_session(command: &mut Command, terminal: bool) {
    let enter = move || {
        SigSet::empty().thread_set_mask()?;
        let fixed = |s: &signal::Signal| matches!(s, signal::SIGKILL | signal::SIGSTOP);
        for number in signal::Signal::iterator().filter(|s| !fixed(s)) {
            // SAFETY: the default needs no handler, and the closure runs where signal(2) may be called.
            unsafe { signal::signal(number, SigHandler::SigDfl)? };
        }
        rustix::process::setsid()?;
        if terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the child between fork and exec. It makes a few system calls and neither
    // allocates nor takes locks, so the state of other threads' locks at the fork does not matter.
    unsafe { command.pre_exec(enter) };
}
