//! Runs other programs, with their output in a log file that is quoted when they fail; and children that end with their owner.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// As many lines of a log as show most causes without filling the screen.
const TAIL: usize = 25;

/// A program to run.
pub struct Program {
    command: Command,
    log: Option<PathBuf>,
}

impl Program {
    /// A program found by name in PATH, or by path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        // Messages are parsed and quoted: they should not depend on the user's language.
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        Self { command, log: None }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets the working folder.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Takes a variable out of the environment.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Keeps the output in this file too.
    #[must_use]
    pub fn log(mut self, log: impl Into<PathBuf>) -> Self {
        self.log = Some(log.into());
        self
    }

    /// Runs the program to its end; failure is an error that quotes the end of its output.
    pub fn run(self) -> Result<()> {
        self.watch(|_| ())
    }

    /// The same, and shows each line of output to `line` as it comes.
    pub fn watch(self, line: impl FnMut(&str)) -> Result<()> {
        let name = self.name();
        let log = self.log.clone();
        let (success, tail) = self.stream(line)?;
        if success {
            return Ok(());
        }
        let place = log.map(|log| format!("\nfull output: {}", log.display())).unwrap_or_default();
        bail!("`{name}` failed:\n{}{place}", tail.join("\n"))
    }

    /// Runs the program, gives every line to `line`, and says whether it succeeded, with the last lines.
    pub fn stream(mut self, mut line: impl FnMut(&str)) -> Result<(bool, Vec<String>)> {
        let name = self.name();
        let mut log = match &self.log {
            Some(path) => Some(create_log(path)?),
            None => None,
        };
        let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        self.command.stdout(writer.try_clone().context("cannot make a pipe")?).stderr(writer);
        let mut child = self.command.spawn().with_context(|| format!("cannot run `{name}`"))?;
        // Drops our ends of the pipe, else it never ends.
        drop(self.command);
        let mut tail = VecDeque::new();
        let mut reader = BufReader::new(reader);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).context("cannot read a program's output")? > 0 {
            if let Some(log) = &mut log {
                log.write_all(&bytes).context("cannot write a log")?;
            }
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_end();
            line(text);
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(text.to_owned());
            bytes.clear();
        }
        let status = child.wait().with_context(|| format!("cannot wait for `{name}`"))?;
        if !status.success() {
            tail.push_back(format!("({status})"));
        }
        Ok((status.success(), tail.into()))
    }

    /// Runs the program and returns its standard output.
    pub fn output(mut self) -> Result<Vec<u8>> {
        let name = self.name();
        let output = self.command.output().with_context(|| format!("cannot run `{name}`"))?;
        if !output.status.success() {
            bail!(
                "`{name}` failed ({}):\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim_end()
            );
        }
        Ok(output.stdout)
    }

    /// Runs the program and returns its standard output as text.
    pub fn text(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.output()?).into_owned())
    }

    fn name(&self) -> String {
        let mut name = self.command.get_program().to_string_lossy().into_owned();
        for arg in self.command.get_args().take(4) {
            name.push(' ');
            name.push_str(&arg.to_string_lossy());
        }
        name
    }
}

fn create_log(path: &Path) -> Result<fs::File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))
}

/// A child that does not outlive its owner: a test that fails leaves nothing running.
#[derive(Debug)]
pub struct Guarded(pub Child);

impl Guarded {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        command.spawn().map(Self).with_context(|| format!("cannot start {command:?}"))
    }

    /// Its exit status, `None` if a signal ended it.
    ///
    /// # Errors
    /// It takes longer than `limit`, and was ended.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<i32>> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.code());
            }
            if start.elapsed() > limit {
                self.0.kill()?;
                self.0.wait()?;
                bail!("did not end within {} s", limit.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Both fail when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_quotes_the_output_and_names_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("sub/it.log");
        let error =
            Program::new("sh").arg("-c").arg("echo out; echo cause >&2; exit 3").log(&log).run().unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("cause") && text.contains("it.log") && text.contains("exit status: 3"),
            "{text}"
        );
        assert_eq!(fs::read_to_string(log).unwrap(), "out\ncause\n");
    }
}
