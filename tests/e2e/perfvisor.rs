//! Starting `perfvisor` as a user does, with a time limit.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use images::process::Guarded;

use crate::{lab_folder, summary};

/// Status of `perfvisor run` for its own failures, wrong options included: all others are the command's.
pub(crate) const RUN_FAILED: i32 = 125;
/// Status of the other commands for theirs.
pub(crate) const FAILED: i32 = 1;

/// Starting the lab machine, booting a guest in it and a margin for a busy machine.
pub(crate) const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// A command that boots nothing, in a lab machine that may have to be started for it.
pub(crate) const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// $PERFVISOR, or the newer of the one beside the programs of this suite and the release build: building this suite
/// does not build perfvisor, and an old one of another profile may lie about.
pub(crate) fn program() -> Result<PathBuf> {
    if let Some(path) = env::var_os("PERFVISOR") {
        return Ok(PathBuf::from(path));
    }
    let folder = Path::new(env!("CARGO_BIN_EXE_spin")).parent().context("a program is in a folder")?;
    let beside = folder.join("perfvisor");
    let release = folder.with_file_name("release").join("perfvisor");
    let built = |path: &&PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    [&beside, &release].into_iter().filter(|path| path.is_file()).max_by_key(built).cloned().with_context(|| {
        format!(
            "perfvisor is not built (looked for {} and {}): run `cargo xtask test`, which builds everything first, or \
             `cargo build --release --workspace && cargo xtask setup`",
            beside.display(),
            release.display()
        )
    })
}

/// `perfvisor --lab ARGUMENTS`.
pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Result<Command> {
    let mut command = Command::new(program()?);
    command.arg("--lab").args(arguments);
    lab_folder::choose(&mut command);
    Ok(command)
}

/// How a command ended and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn expect_status(&self, expected: i32) -> Result<()> {
        ensure!(self.status == Some(expected), "ended with {:?}, expected {expected}{self}", self.status);
        Ok(())
    }

    /// Its own failure, with all these words in its message.
    pub(crate) fn expect_refusal(&self, status: i32, words: &[&str]) -> Result<()> {
        self.expect_status(status)?;
        let message = self.stderr.to_lowercase();
        for word in words {
            ensure!(message.contains(&word.to_lowercase()), "the message does not mention '{word}'{self}");
        }
        ensure!(!self.stderr.contains("panicked"), "a panic is no error message{self}");
        Ok(())
    }
}

/// What it said, for a message.
impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n--- stdout\n{}", tail(&String::from_utf8_lossy(&self.stdout)))?;
        write!(f, "\n--- stderr\n{}", tail(&self.stderr))
    }
}

/// The last lines of a text.
pub(crate) fn tail(text: &str) -> String {
    const LINES: usize = 40;
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    let left_out = if from > 0 { format!("({from} lines before)\n") } else { String::new() };
    left_out + &lines[from..].join("\n")
}

/// Run `perfvisor --lab ARGUMENTS` to its end, with this on its standard input.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(
    arguments: impl IntoIterator<Item = S>,
    input: &[u8],
    limit: Duration,
) -> Result<Ended> {
    let mut command = command(arguments)?;
    let mut child =
        Guarded::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let pipes = (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
    let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) = pipes else { bail!("no pipes") };
    thread::scope(|scope| {
        scope.spawn(move || {
            // It may end without reading all: that is for its status to say.
            let _ = stdin.write_all(input);
        });
        let stdout = scope.spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).map(|_| bytes)
        });
        let stderr = scope.spawn(move || {
            let mut bytes = Vec::new();
            stderr.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
        });
        let status = child.wait(limit);
        // Its pipes close with it, whether it ended or was killed.
        let read = |what, result: thread::Result<std::io::Result<_>>| match result {
            Ok(result) => result.context(what),
            Err(_) => bail!("{what}: the reader panicked"),
        };
        let stdout =
            read("reading its standard output", stdout.join().map(|r| r.map(|b| (b, String::new()))))?.0;
        let stderr = read("reading its standard error", stderr.join().map(|r| r.map(|s| (Vec::new(), s))))?.1;
        note_retry(&stderr);
        let ended = Ended { status: status.as_ref().ok().copied().flatten(), stdout, stderr };
        match status {
            Ok(_) => Ok(ended),
            Err(error) => Err(error.context(format!("{command:?}{ended}"))),
        }
    })
}

/// perfvisor says so when it found a lab machine that then ended without an answer. It powers off when nobody has used it
/// for long, which in this suite does not happen.
pub(crate) fn note_retry(stderr: &str) {
    if let Some(line) = stderr.lines().find(|line| line.contains("another one is started")) {
        summary::retried("lab machine", line);
    }
}

/// Read a file that perfvisor was to write.
pub(crate) fn written(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("perfvisor did not write {}", path.display()))
}
