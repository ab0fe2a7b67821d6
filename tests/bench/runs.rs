//! A guest in which operations are measured, and what becomes of it: some are lost on the way.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::arguments::Arguments;
use crate::cost::{Line, Side};
use crate::counters::Instrument;
use crate::place::Place;
use crate::prepared;
use crate::setting::Setting;
use crate::system::System;

/// Times a guest may be lost in one operation before that is left out.
const ATTEMPTS: u32 = 3;
/// A guest that has nothing to show for so long is lost.
const LIMIT: Duration = Duration::from_secs(240);

/// One run: the host or the guest of a system is measured in one setting.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) system: System,
    pub(crate) setting: Setting,
    pub(crate) side: Side,
    pub(crate) instrument: Instrument,
    pub(crate) place: &'a Place,
    pub(crate) arguments: &'a Arguments,
}

impl<'a> Run<'a> {
    /// All of them.
    pub(crate) fn all(place: &'a Place, arguments: &'a Arguments) -> Vec<Self> {
        let mut runs = Vec::new();
        let settings = match &arguments.settings[..] {
            [] => Setting::value_variants(),
            some => some,
        };
        for &system in &arguments.systems {
            for &setting in settings {
                // Host and guest one after the other: together they need more counters than a processor has, with the
                // guest's own.
                for side in [Side::Host, Side::Guest] {
                    let instrument = setting.instrument(system);
                    runs.push(Self { system, setting, side, instrument, place, arguments });
                }
            }
        }
        runs
    }

    /// What it is called in the results.
    pub(crate) fn key(&self) -> String {
        format!("{} {} {}", self.system.name(), self.setting.name(), self.side.name())
    }

    /// Of all operations those that it has.
    pub(crate) fn operations(&self, names: &[String]) -> Vec<String> {
        let asked = &self.arguments.operations;
        let means = |name: &str, word: &String| {
            name == word || name.starts_with(word.as_str()) && !names.contains(word)
        };
        names
            .iter()
            .filter(|name| asked.is_empty() || asked.iter().any(|word| means(name, word)))
            .filter(|name| self.setting.has(self.system, self.side, name))
            .cloned()
            .collect()
    }

    /// Measures these operations. Of two lines about one the later is right.
    pub(crate) fn measure(&self, names: &[String]) -> Result<Vec<Line>> {
        let mut lines = self.lines(names)?;
        let uncounted: Vec<String> =
            lines.iter().filter(|line| line.is_uncounted()).map(|line| line.name().to_owned()).collect();
        if !uncounted.is_empty() && self.instrument == Instrument::Perf {
            eprintln!("{}: again with one counter", self.key());
            lines.extend(Self { instrument: Instrument::Total, ..*self }.lines(&uncounted)?);
        }
        Ok(lines)
    }

    /// Where a guest is lost, the next one does what is left.
    fn lines(&self, names: &[String]) -> Result<Vec<Line>> {
        let mut left = names.to_vec();
        let mut lines = Vec::new();
        let mut attempt = 0;
        while !left.is_empty() {
            let before = left.len();
            let outcome = self.attempt(&left, &mut lines);
            let done: BTreeSet<&str> = lines.iter().map(Line::name).collect();
            left.retain(|name| !done.contains(name.as_str()));
            let Err(error) = outcome else { break };
            self.place.abandon();
            attempt = if left.len() < before { 1 } else { attempt + 1 };
            if left.is_empty() {
                break;
            }
            if attempt < ATTEMPTS {
                eprintln!("bench: {error:#}; on from {}", left[0]);
                continue;
            }
            // Nothing at all is no guest's fault.
            if lines.is_empty() {
                return Err(error);
            }
            let name = left.remove(0);
            eprintln!("bench: {error:#}; without {name}");
            lines.push(Line::NotRun { name, reason: "the guest was lost in it".to_owned() });
            attempt = 0;
        }
        Ok(lines)
    }

    /// Run the guest, on a host with counters, under `bench measure`; what it writes is kept whatever comes then.
    fn attempt(&self, names: &[String], lines: &mut Vec<Line>) -> Result<()> {
        let prepared = prepared::costs(self.system, self.setting, self.place, self.arguments, names)?;
        let mut command = self.place.bench(&prepared.files);
        command.args(["measure", self.side.name(), "--by", &self.instrument.name()]);
        command.args((self.setting == Setting::Interrupted).then_some("--interrupted"));
        for word in &prepared.beside {
            command.arg("--beside").arg(word);
        }
        command.arg("--").args(&prepared.command);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("bench measure")?;
        if let Some(messages) = child.stderr.take() {
            self.pass_on(messages);
        }
        let output = BufReader::new(child.stdout.take().context("no pipe")?);
        let (send, receive) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        loop {
            match receive.recv_timeout(LIMIT) {
                Ok(line) => {
                    lines.push(serde_json::from_str(&line).context("what was measured cannot be read")?)
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    child.kill()?;
                    child.wait()?;
                    bail!("nothing came for {} s", LIMIT.as_secs());
                }
            }
        }
        let status = child.wait()?;
        ensure!(status.success(), "the guest, or what measures it, ended with {status}");
        Ok(())
    }

    /// Other runs have messages meanwhile.
    fn pass_on(&self, messages: impl Read + Send + 'static) {
        let key = self.key();
        thread::spawn(move || {
            let lines = BufReader::new(messages).lines().map_while(Result::ok);
            lines.for_each(|line| eprintln!("{key}: {}", line.trim()));
        });
    }
}

/// What `costs` can do.
pub(crate) fn names(place: &Place) -> Result<Vec<String>> {
    let program = place.program("costs");
    let output =
        Command::new(&program).arg("--list").output().with_context(|| program.display().to_string())?;
    ensure!(output.status.success(), "{} ended with {}", program.display(), output.status);
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}
