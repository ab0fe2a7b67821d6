//! What a check is, and the line that says what came of it.

use anyhow::Result;

/// One named check.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Result<()>,
}

/// The line of a check; whether it passed.
pub(crate) fn verdict(name: &str, outcome: &Result<()>) -> bool {
    verdict_with(name, "", outcome)
}

/// The same, with how long it took.
pub(crate) fn verdict_with(name: &str, time: &str, outcome: &Result<()>) -> bool {
    match outcome {
        Ok(()) => println!("ok {name}{time}"),
        Err(error) => println!("FAIL {name} {error:#}"),
    }
    outcome.is_ok()
}
