//! Several command lines in one guest half, each with what it printed and its status.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::case::Evidence;

/// Runs lines one after the other, each under its name.
pub(crate) fn script(lines: impl IntoIterator<Item = (&'static str, String)>) -> String {
    lines
        .into_iter()
        .map(|(name, line)| format!("echo '@ {name}'\n{line}\necho \"@ ended with $?\"\n"))
        .collect()
}

/// What each line printed, and its status.
pub(crate) struct Answers<'a>(BTreeMap<&'a str, (&'a str, &'a str)>);

impl<'a> Answers<'a> {
    pub(crate) fn of(evidence: &'a Evidence) -> Result<Self> {
        let mut answers = BTreeMap::new();
        let mut rest = evidence.output.as_str();
        while let Some((name, after)) = rest.strip_prefix("@ ").and_then(|rest| rest.split_once('\n')) {
            let (said, after) =
                after.split_once("@ ended with ").with_context(|| format!("{name} did not end"))?;
            let (status, after) = after.split_once('\n').context("no status")?;
            answers.insert(name, (said, status));
            rest = after;
        }
        Ok(Self(answers))
    }

    /// What it printed, if it ended with `status`.
    pub(crate) fn said(&self, name: &str, status: i32) -> Result<&'a str> {
        let (said, ended) = self.0.get(name).with_context(|| format!("{name} did not run"))?;
        ensure!(*ended == status.to_string(), "{name} ended with {ended}, expected {status}:\n{said}");
        Ok(said)
    }
}
