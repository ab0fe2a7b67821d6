//! One run, as its threads know it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;

/// What the threads share.
pub(super) struct Run {
    pub(super) length: Duration,
    /// When the last thread was there: to start them takes long among those that work.
    pub(super) begun: OnceLock<Instant>,
    pub(super) all_there: Barrier,
    pub(super) failed: AtomicBool,
    /// Where threads may be put.
    pub(super) cpus: Vec<CpuSet>,
}

impl Run {
    pub(super) fn goes_on(&self) -> bool {
        self.begun.get().is_none_or(|begun| begun.elapsed() < self.length)
            && !self.failed.load(Ordering::Relaxed)
    }
}
