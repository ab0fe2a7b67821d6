//! A host that is interrupted all the time: a timer on each processor, and a thread that it wakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use rustix::thread::{CpuSet, sched_setaffinity};

/// How often. In the lab this is 50,000 instructions.
const EACH: Duration = Duration::from_micros(50);

/// They come for as long as this is there.
pub(crate) struct Interrupts {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Interrupts {
    pub(crate) fn begin() -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for cpu in 0..thread::available_parallelism()?.get() {
            let over = over.clone();
            threads.push(thread::spawn(move || {
                let mut own = CpuSet::new();
                own.set(cpu);
                // Elsewhere it would interrupt, too, only not all.
                let _ = sched_setaffinity(None, &own);
                while !over.load(Ordering::Relaxed) {
                    thread::sleep(EACH);
                }
            }));
        }
        Ok(Self { over, threads })
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
