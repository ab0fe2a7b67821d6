//! What a machine may do on the host once it runs.
//!
//! Everything that a machine needs is opened while it is made. Before its guest runs, each of its threads gives up the rest: it gains no
//! privileges (no_new_privs), keeps no capability but what counting needs, opens nothing (Landlock), and makes only the
//! system calls that a thread of its [`Role`] makes (seccomp). A call that is not among them ends the machine with a
//! message ([`forbidden`]).
//!
//! All of these belong to a thread, and threads inherit them, so each thread calls [`Confinement::enter`] itself, when it has
//! opened what it alone can open: a vCPU's thread its file of the host module, for example.

mod capabilities;
pub mod descriptors;
mod filters;
mod forbidden;
mod landlock;
mod program;
mod role;

use std::fmt;
use std::process::exit;
use std::sync::Arc;

use ::landlock::RulesetCreated;
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use session::EXIT_OWN_FAILURE;

use crate::say::{self, say};
use filters::Filters;
pub use role::{Counting, Role};

/// Why a machine cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no filters.
    #[error(
        "this kernel has no seccomp filters (CONFIG_SECCOMP_FILTER), so the machine would keep all rights of its user; \
         --no-confinement allows that"
    )]
    NoFilters,
    /// The Landlock ruleset could not be made.
    #[error("confinement: {0}")]
    Landlock(#[from] ::landlock::RulesetError),
    /// The handler could not be installed.
    #[error("confinement: {0}")]
    Handler(std::io::Error),
}

/// What is in force, for a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// No thread gains privileges.
    pub no_new_privs: bool,
    /// Each thread has a filter of system calls.
    pub seccomp: bool,
    /// The version of Landlock's interface that is used; `None` if the kernel has no Landlock, or it is off.
    pub landlock: Option<u32>,
    /// The capabilities that vCPU threads keep; the others keep none.
    pub capabilities: Vec<String>,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capabilities = match &self.capabilities[..] {
            [] => "no capabilities".to_owned(),
            some => format!("capabilities {} (vCPUs only)", some.join(", ")),
        };
        write!(f, "no new privileges, {capabilities}, a seccomp filter on each thread, ")?;
        match self.landlock {
            Some(version) => write!(f, "Landlock {version}"),
            None => f.write_str("no Landlock (this kernel has none in force)"),
        }
    }
}

/// The confinement of one machine; `none` leaves its threads as they are.
#[derive(Clone, Debug)]
pub struct Confinement(Option<Arc<Prepared>>);

#[derive(Debug)]
struct Prepared {
    kept: CapabilitySet,
    filters: Filters,
    ruleset: RulesetCreated,
    state: State,
}

impl Confinement {
    /// All threads keep all rights.
    pub fn none() -> Self {
        Self(None)
    }

    /// For a machine that counts so. In the process that runs it.
    ///
    /// # Errors
    /// The kernel cannot enforce it.
    pub fn prepare(counting: Counting) -> Result<Self, Error> {
        if !filters::can_be_enforced() {
            return Err(Error::NoFilters);
        }
        // What messages are written to is opened before.
        say::prepare();
        forbidden::install_handler().map_err(Error::Handler)?;
        let kept = capabilities::kept(counting);
        let state = State {
            no_new_privs: true,
            seccomp: true,
            landlock: landlock::version(),
            capabilities: capabilities::names(kept),
        };
        let (filters, ruleset) = (Filters::new(counting), landlock::ruleset()?);
        Ok(Self(Some(Arc::new(Prepared { kept, filters, ruleset, state }))))
    }

    /// What is in force for a machine whose threads have all entered.
    pub fn state(&self) -> Option<&State> {
        self.0.as_deref().map(|prepared| &prepared.state)
    }

    /// Confine the calling thread. One that cannot be ends the process, for it must not go on.
    pub fn enter(&self, role: Role) {
        let Some(prepared) = &self.0 else { return };
        if let Err(e) = prepared.enter(role) {
            say(format_args!(
                "{role} cannot be confined: {e}; the machine ends. --no-confinement runs without"
            ));
            exit(EXIT_OWN_FAILURE.into());
        }
    }
}

impl Prepared {
    fn enter(&self, role: Role) -> Result<(), Box<dyn std::error::Error>> {
        forbidden::set_role(role);
        if role != Role::Main {
            forbidden::leave_signals_to_the_main_thread()?;
        }
        // A control thread has the rest from the main thread, which made it.
        if role != Role::Control {
            // It sets no_new_privs, without which neither a filter nor a ruleset is taken.
            self.ruleset.try_clone()?.restrict_self()?;
            capabilities::drop_all_but(match role {
                Role::Vcpu(_) => self.kept,
                _ => CapabilitySet::empty(),
            })?;
        }
        // Last, for it forbids all of the above.
        Ok(seccompiler::apply_filter(self.filters.of(role)?)?)
    }
}

/// What this kernel can enforce: seccomp filters, and Landlock's version.
pub fn of_this_kernel() -> (bool, Option<u32>) {
    (filters::can_be_enforced(), landlock::version())
}

/// Before a machine's process has a second thread. All threads share one heap: glibc's heaps of further threads open a file of
/// /proc when they shrink (`check_may_shrink_heap`).
#[allow(unsafe_code)]
pub fn share_one_heap() {
    // SAFETY: mallopt sets a number.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// A panic says what happened, without a backtrace, for which files would have to be opened.
pub fn panic_without_backtraces() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        say(format_args!(
            "thread '{}' {panic} (--no-confinement and RUST_BACKTRACE=1 show how it came there)",
            thread.name().unwrap_or("?")
        ));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_is_said() {
        let state = State { no_new_privs: true, seccomp: true, landlock: Some(6), capabilities: Vec::new() };
        assert_eq!(
            state.to_string(),
            "no new privileges, no capabilities, a seccomp filter on each thread, Landlock 6"
        );
        let state = State { landlock: None, capabilities: vec!["PERFMON".to_owned()], ..state };
        let text = state.to_string();
        assert!(text.contains("PERFMON (vCPUs only)") && text.contains("no Landlock"), "{text}");
    }

    #[test]
    fn who_is_not_confined_has_no_state_and_goes_on() {
        let none = Confinement::none();
        none.enter(Role::Main);
        assert_eq!(none.state(), None);
    }
}
