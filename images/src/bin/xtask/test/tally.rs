//! Counts tests from what cargo and the test programs print.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// What became of some tests.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failures: Vec<String>,
    /// What the failed tests said first, of those that said something.
    pub(super) reasons: BTreeMap<String, String>,
    /// Tests that were not run, each with the reason.
    pub(super) skips: BTreeMap<String, String>,
    /// What was lost and tried again, with the reason.
    pub(super) retries: Vec<(String, String)>,
    /// How long cases took, of the tests that say so.
    pub(super) times: Vec<(String, f64)>,
}

/// One that is tried again may be an accident; a second one in a run is none.
const MAX_RETRIES: usize = 1;

impl Tally {
    pub(super) fn passed(passed: usize) -> Self {
        Self { passed, ..Self::default() }
    }

    pub(super) fn failed(name: &str) -> Self {
        Self { failures: vec![name.to_owned()], ..Self::default() }
    }

    pub(super) fn skipped(name: &str, reason: &str) -> Self {
        Self { skips: BTreeMap::from([(name.to_owned(), reason.to_owned())]), ..Self::default() }
    }

    /// Makes a failure of more retries than may be, whichever steps had them.
    pub(super) fn judge_retries(&mut self) {
        if self.retries.len() > MAX_RETRIES {
            self.failures.push(format!("{} tests were tried again", self.retries.len()));
        }
    }

    /// The cases that took longest, the longest first.
    pub(super) fn slowest(&self, most: usize) -> Vec<&(String, f64)> {
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by(|a, b| b.1.total_cmp(&a.1));
        times.truncate(most);
        times
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.reasons.extend(other.reasons);
        self.skips.extend(other.skips);
        self.retries.extend(other.retries);
        self.times.extend(other.times);
    }
}

/// Reads the output of tests line by line. It knows the lines of Rust's test harness and of libtest-mimic,
///
/// ```text
/// test NAME ... ok
/// test NAME ... FAILED
/// test NAME ... ignored, REASON
/// ```
///
/// and what tests say themselves:
///
/// ```text
/// not run: NAME: REASON
/// retried: NAME: REASON
/// took: NAME: SECONDS s
/// ```
///
/// After the tests both harnesses print what the failed ones said, below `---- NAME ----` or `---- NAME stdout ----`.
#[derive(Debug, Default)]
pub(super) struct TestOutput {
    tally: Tally,
    /// The failed test whose words these lines are.
    speaks: Option<String>,
}

/// A failed test's words are repeated in the summary up to this length, in bytes.
const MAX_REASON: usize = 400;

impl TestOutput {
    pub(super) fn line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" ----")) {
            self.speaks = Some(name.strip_suffix(" stdout").unwrap_or(name).to_owned());
            return;
        }
        if line.starts_with("failures:") || line.starts_with("test result:") {
            self.speaks = None;
        }
        let said = |what: &str| line.trim().strip_prefix(what)?.split_once(": ");
        if let Some((name, reason)) = said("not run: ") {
            self.tally.skips.insert(name.to_owned(), reason.to_owned());
        } else if let Some((name, reason)) = said("retried: ") {
            self.tally.retries.push((name.to_owned(), reason.to_owned()));
        } else if let Some((name, time)) = said("took: ") {
            let seconds = time.strip_suffix(" s").and_then(|seconds| seconds.parse().ok());
            self.tally.times.extend(seconds.map(|seconds| (name.to_owned(), seconds)));
        } else if let Some((name, outcome)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            let name = name.trim();
            if outcome == "ok" || outcome.starts_with("ok ") {
                self.tally.passed += 1;
            } else if outcome.starts_with("FAILED") {
                self.tally.failures.push(name.to_owned());
            } else if let Some(reason) = outcome.strip_prefix("ignored") {
                let reason = reason.trim_start_matches(", ").to_owned();
                // The suite's own reason, before or after, says more.
                let known = self.tally.skips.entry(name.to_owned()).or_default();
                if known.is_empty() {
                    *known = reason;
                }
            }
        } else if let Some(name) = &self.speaks {
            let reason = self.tally.reasons.entry(name.clone()).or_default();
            if !line.trim().is_empty() && reason.len() + line.len() < MAX_REASON {
                if !reason.is_empty() {
                    reason.push_str("; ");
                }
                reason.push_str(line.trim());
            }
        }
    }

    /// The counts, once the output has ended.
    pub(super) fn tally(mut self, step: &str, success: bool) -> Tally {
        if !success && self.tally.failures.is_empty() {
            // It didn't compile, or died.
            self.tally.failures.push(step.to_owned());
        }
        for reason in self.tally.skips.values_mut().filter(|reason| reason.is_empty()) {
            "ignored, without a reason given".clone_into(reason);
        }
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str, success: bool) -> Tally {
        let mut reader = TestOutput::default();
        output.lines().for_each(|line| reader.line(line));
        reader.tally("step", success)
    }

    #[test]
    fn both_harnesses_are_counted() {
        let tally = tally(
            "running 3 tests\ntest a::b ... ok\ntest c - should panic ... ok\ntest d ... ignored, needs a PMU\n\
             test e       ... FAILED\ntest f ... ignored\nnot run: f: no /dev/kvm: it isn't there\n\
             test result: FAILED. 2 passed; 1 failed; 2 ignored",
            false,
        );
        assert_eq!(tally.passed, 2);
        assert_eq!(tally.failures, ["e"]);
        let skips: Vec<_> =
            tally.skips.iter().map(|(name, reason)| (name.as_str(), reason.as_str())).collect();
        assert_eq!(skips, [("d", "needs a PMU"), ("f", "no /dev/kvm: it isn't there")]);
    }

    #[test]
    fn what_was_tried_again_and_how_long_it_took_are_kept() {
        let mut all = Tally::default();
        for lost in ["one", "two"] {
            all += tally(
                &format!("took: a::b: 1.5 s\ntook: {lost}: 30.0 s\nretried: {lost}: triple fault: rip 0"),
                true,
            );
            all.judge_retries();
            assert_eq!(all.failures.is_empty(), lost == "one", "{:?}", all.failures);
        }
        assert_eq!(all.retries[1], ("two".to_owned(), "triple fault: rip 0".to_owned()));
        let slowest: Vec<_> = all.slowest(3).into_iter().map(|(name, time)| (name.as_str(), *time)).collect();
        assert_eq!(slowest, [("one", 30.0), ("two", 30.0), ("a::b", 1.5)]);
    }

    #[test]
    fn what_failed_tests_said_is_kept() {
        let tally = tally(
            "test a::b ... FAILED\ntest c ... FAILED\n\nfailures:\n\n---- a::b ----\npmctest ended with 1:\nnot run: d: why\n\
             FAIL e 4 of 5\n\n---- c stdout ----\npanicked\n\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED.",
            false,
        );
        assert_eq!(tally.reasons["a::b"], "pmctest ended with 1:; FAIL e 4 of 5");
        assert_eq!(tally.reasons["c"], "panicked");
        assert_eq!((tally.reasons.len(), tally.failures.len()), (2, 2));
    }

    #[test]
    fn a_test_program_that_dies_is_a_failure() {
        assert_eq!(tally("error: could not compile", false).failures, ["step"]);
        assert_eq!(tally("test a ... ok", true).failures, [""; 0]);
    }
}
