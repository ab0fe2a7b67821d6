//! What both sides agree on.

/// Spoken version; the agent names its own in [`Hello`](crate::Hello), and the host refuses another.
pub const VERSION: u32 = 1;

/// Exit status of perfvisor's own failures.
pub const EXIT_OWN_FAILURE: u8 = 125;
