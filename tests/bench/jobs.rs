//! All that is to be measured, in pieces that any lab machine can do, by as many workers as there are machines.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Result;

use crate::arguments::Arguments;
use crate::cost::Line;
use crate::place::Place;
use crate::results::Results;
use crate::runs::Run;
use crate::system::System;
use crate::{scale, start};

/// What a worker does in one go.
enum Job<'a> {
    /// These operations of one run.
    Operations(Run<'a>, Vec<String>),
    Starts(System),
    Scale(System),
}

impl<'a> Job<'a> {
    /// Without what these results have, if the run is to be resumed.
    fn all(place: &'a Place, arguments: &'a Arguments, names: &[String], results: &Results) -> Vec<Self> {
        let mut jobs = Vec::new();
        for run in Run::all(place, arguments) {
            let operations = run.operations(names);
            let is_done = arguments.resume && results.done.contains(&run.key());
            if !operations.is_empty() && !is_done {
                jobs.push(Self::Operations(run, operations));
            }
        }
        if arguments.start {
            jobs.extend(arguments.systems.iter().copied().map(Self::Starts));
            jobs.extend(
                arguments.systems.iter().copied().filter(|&system| scale::has(system)).map(Self::Scale),
            );
        }
        jobs
    }

    fn system(&self) -> System {
        match self {
            Self::Operations(run, _) => run.system,
            Self::Starts(system) | Self::Scale(system) => *system,
        }
    }

    fn key(&self) -> String {
        match self {
            Self::Operations(run, _) => run.key(),
            Self::Starts(system) => format!("{system} start"),
            Self::Scale(system) => format!("{system} scale"),
        }
    }
}

/// What workers share.
struct Shared<'a> {
    jobs: Vec<Job<'a>>,
    results: Results,
    /// Keys of jobs of which not all was measured.
    failed: Vec<String>,
    begun: usize,
    /// What each worker is at.
    at: Vec<Option<System>>,
}

impl<'a> Shared<'a> {
    /// One of the same system, which the machine has the files of; else one of a system that nobody is at.
    fn take(&mut self, worker: usize) -> Option<Job<'a>> {
        let own = self.at[worker];
        let is_others = |system| self.at.contains(&Some(system));
        let same = self.jobs.iter().position(|job| Some(job.system()) == own);
        let free = || self.jobs.iter().position(|job| !is_others(job.system()));
        let index = same.or_else(free).unwrap_or_default();
        if index >= self.jobs.len() {
            self.at[worker] = None;
            return None;
        }
        let job = self.jobs.remove(index);
        self.at[worker] = Some(job.system());
        self.begun += 1;
        Some(job)
    }
}

/// Measures what is asked for, beside what `results` has; and the keys of what failed. `save` is called after each job: what is
/// measured is not lost with what fails later.
pub(crate) fn measured(
    places: &[Place],
    arguments: &Arguments,
    names: &[String],
    results: Results,
    save: impl Fn(&Results) -> Result<()> + Sync,
) -> Result<(Results, Vec<String>)> {
    let Some(first) = places.first() else { return Ok((results, Vec::new())) };
    let jobs = Job::all(first, arguments, names, &results);
    let number = jobs.len();
    let at = vec![None; places.len()];
    let shared = Mutex::new(Shared { jobs, results, failed: Vec::new(), begun: 0, at });
    let begin = Instant::now();
    let work = |worker: usize| -> Result<()> {
        loop {
            let (job, begun) = {
                let mut shared = lock(&shared);
                let Some(job) = shared.take(worker) else { return Ok(()) };
                (job, shared.begun)
            };
            let key = job.key();
            eprintln!("[{begun} of {number}, {} s] {key}", begin.elapsed().as_secs());
            let is_whole = done(job, &places[worker], arguments, &shared);
            let mut shared = lock(&shared);
            if !is_whole {
                shared.failed.push(key);
            }
            save(&shared.results)?;
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..places.len()).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Ok(())))
    })?;
    eprintln!("measured in {} s", begin.elapsed().as_secs());
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((shared.results, shared.failed))
}

/// Whether all of it was measured.
fn done(job: Job<'_>, place: &Place, arguments: &Arguments, shared: &Mutex<Shared<'_>>) -> bool {
    let key = job.key();
    match job {
        Job::Operations(run, names) => {
            let run = Run { place, ..run };
            let outcome = run.measure(&names);
            let results = &mut lock(shared).results;
            match outcome {
                Ok(lines) => {
                    lines.into_iter().for_each(|line| results.add(&run, line));
                    if arguments.operations.is_empty() {
                        results.done.insert(key);
                    }
                    true
                }
                Err(error) => {
                    eprintln!("bench: {key}: {error:#}");
                    for name in names {
                        let reason = format!("the run failed: {error:#}");
                        results.add(&run, Line::NotRun { name, reason });
                    }
                    false
                }
            }
        }
        Job::Starts(system) => {
            let known = lock(shared).results.starts.clone();
            match start::measured(place, arguments, system, &known) {
                Ok(starts) => {
                    let is_whole = starts.iter().all(start::Start::is_whole);
                    lock(shared).results.put_starts(starts);
                    is_whole
                }
                Err(error) => {
                    eprintln!("bench: {key}: {error:#}");
                    false
                }
            }
        }
        Job::Scale(system) => {
            let known = lock(shared).results.scale.clone();
            match scale::measured(place, arguments, system, &known) {
                Ok(scale) => {
                    let is_whole = scale.iter().all(|one| one.idle.is_ok());
                    lock(shared).results.put_scale(scale);
                    is_whole
                }
                Err(error) => {
                    eprintln!("bench: {key}: {error:#}");
                    false
                }
            }
        }
    }
}

fn lock<'m, 'a>(shared: &'m Mutex<Shared<'a>>) -> MutexGuard<'m, Shared<'a>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
