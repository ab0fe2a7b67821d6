//! Whether any session is connected, and since when none is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts connected sessions.
#[derive(Clone, Debug)]
pub struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    connected: usize,
    /// When the last session ended, or this began.
    quiet_since: Instant,
}

/// A connected session; it ends when this is dropped.
#[derive(Debug)]
pub struct Presence(Activity);

impl Default for Activity {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { connected: 0, quiet_since: Instant::now() })))
    }
}

impl Activity {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A session connected.
    pub fn enter(&self) -> Presence {
        self.with(|state| state.connected += 1);
        Presence(self.clone())
    }

    /// How long no session was connected; zero while one is.
    pub fn quiet_for(&self) -> Duration {
        self.with(|state| if state.connected > 0 { Duration::ZERO } else { state.quiet_since.elapsed() })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.connected -= 1;
            state.quiet_since = Instant::now();
        });
    }
}
