//! Two lab machines at once: most of what a guest does keeps one of the host's processors busy, and one of the lab's.
//!
//! What boots something is a *job*. Each lab machine has a thread that takes the next job when it is done with the last.
//! The trials of libtest-mimic then only judge what came out, in their own order, and wait for what is still under way.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::lab_folder::FOLDER;
use crate::perfvisor;

/// Boots something and keeps what came out where its trials find it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

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
