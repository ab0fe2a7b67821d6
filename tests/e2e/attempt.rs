//! Failures of jobs and of trials.

use std::panic::{self, AssertUnwindSafe};

use anyhow::{Result, anyhow};
use libtest_mimic::Failed;

/// A panic of a job would leave its trials waiting for ever.
pub(crate) fn attempt<T>(job: impl FnOnce() -> Result<T>) -> Result<T> {
    panic::catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| Err(anyhow!("it panicked")))
}

/// The whole chain of causes.
pub(crate) fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}
