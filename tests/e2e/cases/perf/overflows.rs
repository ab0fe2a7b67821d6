//! The guest driver's interrupting counters on the family's processor, beside its perf.

use std::time::Duration;

use crate::case::{Case, Setting, no_copies, nothing_asked};
use crate::cases::pmctest;

pub(crate) const CASE: Case = Case {
    name: "overflows",
    copies: no_copies,
    limit: Duration::from_secs(60),
    guest: |setting: &Setting| pmctest::command(setting, &["family-"]),
    answer: nothing_asked,
    tests: || pmctest::tests_of(|name| name.starts_with("family-")),
};
