//! What one boot is, and what came of it.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::case::{Case, Evidence, Setting};
use crate::cases::pmctest;
use crate::dump::Dump;
use crate::summary;

/// One boot.
pub(crate) struct Guest {
    /// Also the machine's name.
    pub(crate) name: &'static str,
    pub(crate) kernel: &'static str,
    pub(crate) vcpus: u32,
    /// As `--pmu` has it.
    pub(crate) pmu: &'static str,
    /// As `--source` has it.
    pub(crate) source: &'static str,
    /// Words for its kernel.
    pub(crate) append: &'static str,
    pub(crate) cases: &'static [Case],
    /// After the cases, and what perfvisor's status is to be then.
    pub(crate) last_command: &'static str,
    pub(crate) status: i32,
    /// Whether counters were used by perfex alone and it printed all it counted: then the report agrees with that.
    pub(crate) only_perfex: bool,
    pub(crate) outcome: OnceLock<Result<Outcome, String>>,
}

impl Guest {
    pub(crate) fn setting(&self) -> Setting {
        Setting { vcpus: self.vcpus, pmu: self.pmu, source: self.source }
    }

    /// Waits for it.
    pub(crate) fn outcome(&'static self) -> Result<&'static Outcome> {
        self.outcome.wait().as_ref().map_err(|error| anyhow!("{error}"))
    }
}

/// What is known when a guest has ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Of the cases that came to their end.
    pub(crate) cases: BTreeMap<&'static str, Evidence>,
    /// Why the others did not.
    pub(crate) failure: Option<String>,
    /// perfvisor's exit status; `None` if it was killed.
    pub(crate) status: Option<i32>,
    /// The final report.
    pub(crate) report: Result<Dump, String>,
    /// That a dump of it is refused afterwards.
    pub(crate) gone: Result<(), String>,
    /// All output.
    pub(crate) transcript: String,
    /// What took how long: until the first case began, and each case.
    pub(crate) times: Vec<(String, Duration)>,
}

impl Outcome {
    /// Notes how long the guest's parts took: pmctest's checks, which say so themselves, instead of pmctest as a whole.
    pub(crate) fn note_times(&self, guest: &str) {
        for (part, time) in &self.times {
            let output = self.cases.get(part.as_str()).map_or("", |evidence| &evidence.output);
            let checks: Vec<_> = output.lines().filter_map(pmctest::took).collect();
            if checks.is_empty() {
                summary::took(&format!("{guest}::{part}"), *time);
            }
            for (check, time) in checks {
                summary::took(&format!("{guest}::{part}::{check}"), time);
            }
        }
    }
}
