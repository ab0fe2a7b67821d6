//! Two lab machines at once: most of what a guest does keeps one of the host's processors busy, and one of the lab's.
//!
//! What boots something is a *job*. Each lab machine has a thread that takes the next job when it is done with the last.
//! The trials of libtest-mimic then only judge what came out, in their own order, and wait for what is still under way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::perfvisor;

/// Boots something and keeps what came out where its trials find it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// `$XDG_RUNTIME_DIR` of this thread's lab machine; the user's own if there is none.
    static FOLDER: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Makes `command` use the lab machine of this thread.
pub(crate) fn choose(command: &mut Command) {
    FOLDER.with_borrow(|folder| {
        if let Some(folder) = folder {
            command.env("XDG_RUNTIME_DIR", folder);
        }
    });
}

/// Runs `jobs` in their order on two lab machines: the user's, which stays for what comes after, and one of this run's, while
/// `judge` judges.
pub(crate) fn work<T>(jobs: Vec<Job>, judge: impl FnOnce() -> T) -> Result<T> {
    let own = tempfile::tempdir()?;
    let jobs = Mutex::new(VecDeque::from(jobs));
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let lane = || {
        let mut worked = false;
        while let Some(job) = next() {
            worked = true;
            job();
        }
        worked
    };
    Ok(thread::scope(|scope| {
        scope.spawn(lane);
        scope.spawn(|| {
            FOLDER.set(Some(own.path().to_owned()));
            if lane() {
                // It would end by itself when nobody has used it for long. A test that needed it has failed if it is gone.
                let _ = perfvisor::run(["lab", "stop"], b"", perfvisor::COMMAND_LIMIT);
            }
        });
        judge()
    }))
}
