//! An operation, and the marks between which somebody outside looks at it.

use std::time::Duration;

use anyhow::Result;
use tests::mark::{Mark, say};

/// An operation; `run(n)` does it n times.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Times it is done in the shorter run; the longer one is three times as long.
    pub(crate) length: u64,
    /// Makes what it needs, in the thread that will run it.
    pub(crate) prepare: fn() -> Result<Run>,
}

pub(crate) type Run = Box<dyn FnMut(u64) -> Result<()>>;

/// Times each pair of lengths is run.
pub(crate) const REPEATED: u32 = 3;
/// Times that preparing an operation is tried again.
const TRIES: u32 = 5;

impl Operation {
    /// Marks each length that is run.
    pub(crate) fn measure(&self) -> Result<()> {
        let name = self.name;
        let mut run = match patiently(self.prepare) {
            Ok(run) => run,
            Err(error) => return say(&Mark::NotRun { name: name.into(), reason: format!("{error:#}") }),
        };
        // What is done once only, at the first time.
        run(self.length)?;
        for _ in 0..REPEATED {
            for length in [self.length, self.length * 3] {
                say(&Mark::Begin { name: name.into(), length })?;
                run(length)?;
            }
            say(&Mark::End)?;
        }
        Ok(())
    }
}

/// What had the counters before may still be giving them back: threads end when they come to it.
pub(crate) fn patiently<T>(mut prepare: impl FnMut() -> Result<T>) -> Result<T> {
    let mut outcome = prepare();
    for _ in 0..TRIES {
        if outcome.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        outcome = prepare();
    }
    outcome
}
