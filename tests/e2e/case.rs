//! What a case is made of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::perfvisor::tail;
use tests::counts::{self, Counts};

/// One thing to check in a guest.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// How long the guest half may take, waiting for the host half included.
    pub(crate) limit: Duration,
    /// Files of this machine that it brings, and their places in the guest. `spin` and `pmctest` are in each guest.
    pub(crate) copies: fn() -> Result<Vec<Copied>>,
    /// The guest half: a script for busybox sh. Its output and errors are the case's output; its input is empty.
    /// `ask QUESTION` waits until the host half has seen to QUESTION.
    pub(crate) guest: fn(&Setting) -> String,
    /// The host half while the guest waits.
    pub(crate) answer: fn(&Waiting<'_>) -> Result<()>,
    /// The host half afterwards: the tests by name, the case's own being the empty one.
    pub(crate) tests: fn() -> Vec<Test>,
}

/// One result line.
pub(crate) struct Test {
    /// Appended to the case's name; may be empty.
    pub(crate) name: String,
    pub(crate) check: Check,
}

/// What a result depends on.
pub(crate) type Check = Box<dyn Fn(&Evidence) -> Result<()> + Send + Sync>;

/// The single test of a case that has one.
pub(crate) fn single(check: fn(&Evidence) -> Result<()>) -> Vec<Test> {
    vec![Test { name: String::new(), check: Box::new(check) }]
}

/// A file of this machine, and its place in a guest.
pub(crate) type Copied = (PathBuf, String);

/// For cases that bring nothing.
pub(crate) fn no_copies() -> Result<Vec<Copied>> {
    Ok(Vec::new())
}

/// For cases that ask nothing.
pub(crate) fn nothing_asked(waiting: &Waiting<'_>) -> Result<()> {
    bail!("the guest half asked '{}', and the host half knows nothing of it", waiting.question)
}

/// What a case may know of its guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) vcpus: u32,
    /// As `--pmu` has it.
    pub(crate) pmu: &'static str,
    /// As `--source` has it.
    pub(crate) source: &'static str,
}

/// A guest that waits for its host half.
pub(crate) struct Waiting<'a> {
    pub(crate) question: &'a str,
    /// The machine's name.
    pub(crate) machine: &'a str,
    pub(crate) setting: Setting,
    /// All output so far, of this case and those before.
    pub(crate) transcript: &'a str,
}

/// What became of a case in a guest.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    pub(crate) setting: Setting,
    /// Output and errors of the guest half.
    pub(crate) output: String,
    /// Status of its last command.
    pub(crate) status: i32,
    /// Answers that failed, with their questions.
    pub(crate) failed_answers: BTreeMap<String, String>,
}

impl Evidence {
    /// Before anything has come out.
    pub(crate) fn in_guest(setting: Setting) -> Self {
        Self { setting, output: String::new(), status: 0, failed_answers: BTreeMap::new() }
    }

    /// The counts perfex printed.
    pub(crate) fn counts(&self) -> Result<Vec<Counts>> {
        counts::parse(&self.output)
    }

    /// What `test` says, after the answers, which come first. A test of the whole case shows the case's output.
    pub(crate) fn judge(&self, test: &Test) -> Result<()> {
        if let Some((question, failure)) = self.failed_answers.iter().next() {
            bail!("while the guest waited at '{question}': {failure}");
        }
        (test.check)(self).map_err(|error| match test.name.is_empty() {
            true => anyhow!("{error:#}\n--- output of the guest half\n{}", tail(&self.output)),
            false => error,
        })
    }
}
