//! 64 threads with counters of all kinds, that are switched, moved, forked, traced, interrupted and killed, all at once.
//!
//! Every thread knows what it must count, and looks at it all the time. At the end nothing may be left of what they used,
//! and the kernel must have said nothing.

mod run;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{CpuSet, sched_getaffinity};

use self::run::Run;
use crate::check::verdict;
use crate::checks::file::{final_references, no_more_than};
use crate::kernel_log::KernelLog;
use crate::memory::available_kb;
use crate::random::Random;

/// What some of the threads do: until the run is over, and the number of times they did it.
struct Kind {
    name: &'static str,
    threads: usize,
    work: fn(&Run, &mut Random) -> Result<u64>,
}

const KINDS: [Kind; 8] = [
    Kind { name: "count", threads: 16, work: work::count },
    Kind { name: "interrupt", threads: 12, work: work::interrupt },
    Kind { name: "come-and-go", threads: 8, work: work::come_and_go },
    Kind { name: "fork-and-exec", threads: 8, work: work::fork_and_exec },
    Kind { name: "trace", threads: 6, work: work::trace },
    Kind { name: "kill-tracees", threads: 6, work: work::kill_tracees },
    Kind { name: "kill", threads: 4, work: work::kill },
    Kind { name: "move", threads: 4, work: work::move_everybody },
];

/// Linux keeps some of what threads and children used.
const ALLOWED_KB: i64 = 12_000;

/// Prints the lines of three checks; whether all passed.
pub(crate) fn run(length: Duration, seed: u64) -> bool {
    let outcome = prepare().map(|mut begun| {
        let exact = exact(length, seed);
        let passed = verdict("stress-exact", &exact);
        let passed = verdict("stress-nothing-left", &begun.nothing_left()) && passed;
        verdict("stress-kernel-log", &begun.log.is_clean()) && passed
    });
    outcome.unwrap_or_else(|error| verdict("stress-exact", &Err(error)))
}

/// How things were at the beginning.
struct Begun {
    references: u64,
    files: usize,
    available_kb: i64,
    log: KernelLog,
}

fn files() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// What the kernel keeps for its own convenience is in nobody's way.
fn drop_caches() -> Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("/proc/sys/vm/drop_caches; are you root?")
}

fn prepare() -> Result<Begun> {
    // Once before anything is compared: the first threads bring what stays.
    exact(Duration::from_millis(1), 1)?;
    let log = KernelLog::begin()?;
    drop_caches()?;
    Ok(Begun { references: final_references()?, files: files()?, available_kb: available_kb()?, log })
}

impl Begun {
    fn nothing_left(&self) -> Result<()> {
        no_more_than(self.references)?;
        let files = files()?;
        ensure!(files <= self.files, "{files} open files, {} before", self.files);
        drop_caches()?;
        let lost = self.available_kb - available_kb()?;
        println!("memory: {lost} kB less than before");
        ensure!(lost < ALLOWED_KB, "{lost} kB of memory are gone");
        Ok(())
    }
}

fn exact(length: Duration, seed: u64) -> Result<()> {
    let allowed = sched_getaffinity(None)?;
    let alone = |cpu| {
        let mut set = CpuSet::new();
        set.set(cpu);
        set
    };
    let run = Run {
        length,
        begun: OnceLock::new(),
        all_there: Barrier::new(KINDS.iter().map(|kind| kind.threads).sum()),
        failed: AtomicBool::new(false),
        cpus: (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).map(alone).collect(),
    };
    let run = &run;
    thread::scope(|scope| {
        let started: Vec<_> = KINDS
            .iter()
            .flat_map(|kind| (0..kind.threads).map(move |number| (kind, number)))
            .map(|(kind, number)| {
                let seed = seed.wrapping_add((number as u64) << 32 | kind.name.len() as u64);
                let work = move || {
                    if run.all_there.wait().is_leader() {
                        let _ = run.begun.set(Instant::now());
                    }
                    let outcome = (kind.work)(run, &mut Random::new(seed));
                    if outcome.is_err() {
                        run.failed.store(true, Ordering::Relaxed);
                    }
                    outcome
                };
                (kind, scope.spawn(work))
            })
            .collect();
        let mut first_failure = None;
        let mut turns = KINDS.map(|kind| (kind.name, 0));
        for (kind, thread) in started {
            let outcome = thread.join().unwrap_or_else(|_| Err(anyhow!("panicked")));
            match outcome.context(kind.name) {
                Ok(number) => {
                    turns.iter_mut().filter(|(name, _)| *name == kind.name).for_each(|(_, n)| *n += number);
                }
                Err(error) => {
                    println!("failed: {error:#}");
                    first_failure.get_or_insert(error);
                }
            }
        }
        println!("turns: {}", turns.map(|(name, number)| format!("{name} {number}")).join(", "));
        first_failure.map_or(Ok(()), Err)
    })
}
