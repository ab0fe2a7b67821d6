//! The end-to-end suite: guests in the lab machine, from the command line of `perfvisor` to the counts.
//!
//! A *case* has two halves in one file of `cases/`: a guest half, a piece of shell script, and a host half, which looks
//! at what came out and may act while the guest waits for it. A *guest* ([`guests`]) is one boot that runs the guest
//! halves of several cases one after the other; each case of each guest is a test of its own in the output. Cases of
//! the command line alone need no guest.
//!
//! ```text
//! cargo xtask test                          everything, with what it needs built first
//! cargo test -p tests --test lab            this suite; perfvisor and the images must be there
//! cargo test -p tests --test lab -- 6.1     only tests with 6.1 in their names; guests without any are not booted
//! ```
//!
//! `PERFVISOR=path` tests another perfvisor than the one of this build. Nothing is skipped for lack of something: without
//! perfvisor or the lab's images the tests fail, saying what to run. Checks that a guest's kind has no use for are listed
//! as not run, each with the reason. A guest that the lab loses is booted again and the end of the output names it
//! (`retried: NAME: why`); a second one in a run fails the run.

mod answers;
mod attempt;
mod boot;
mod case;
mod cases;
mod confinement;
mod dump;
mod guest;
mod guests;
mod lab_folder;
mod labs;
mod perfvisor;
mod summary;

use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Failed, Trial};

use attempt::attempt;
use labs::Job;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Trials only judge; see `labs`.
    arguments.test_threads = Some(1);
    let is_wanted = |name: &str| {
        arguments.filter.as_ref().is_none_or(|filter| match arguments.exact {
            true => name == filter,
            false => name.contains(filter),
        }) && !arguments.skip.iter().any(|skip| name.contains(skip))
    };
    let mut work = Work::default();
    for guest in &guests::ALL {
        work.add(guests::trials(guest, is_wanted), is_wanted, || Box::new(move || guest.run()));
    }
    for (name, test) in cases::COMMAND_LINE {
        let name = format!("command-line::{name}");
        let outcome = Arc::new(OnceLock::<Result<(), String>>::new());
        let awaited = Arc::clone(&outcome);
        let trial = Trial::test(name.clone(), move || awaited.wait().as_ref().map_err(Failed::from).copied());
        work.add(vec![trial], is_wanted, || {
            Box::new(move || {
                let result = summary::timed(&name, || attempt(test));
                // It is set here alone.
                let _ = outcome.set(result.map_err(|error| format!("{error:#}")));
            })
        });
    }
    for (name, reason) in cases::NOT_RUN {
        let name = format!("command-line::{name}");
        if is_wanted(&name) {
            println!("not run: {name}: {reason}");
        }
        work.trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
    }
    if arguments.list {
        work.jobs.clear();
    }
    let conclusion = labs::work(work.jobs, || libtest_mimic::run(&arguments, work.trials));
    match (conclusion, summary::print()) {
        (Ok(conclusion), true) => conclusion.exit_code(),
        (Ok(_), false) => ExitCode::FAILURE,
        (Err(error), _) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Trials, and what must run for those that are wanted.
#[derive(Default)]
struct Work {
    trials: Vec<Trial>,
    jobs: Vec<Job>,
}

impl Work {
    fn add(&mut self, trials: Vec<Trial>, is_wanted: impl Fn(&str) -> bool, job: impl FnOnce() -> Job) {
        if trials.iter().any(|trial| !trial.has_ignored_flag() && is_wanted(trial.name())) {
            self.jobs.push(job());
        }
        self.trials.extend(trials);
    }
}
