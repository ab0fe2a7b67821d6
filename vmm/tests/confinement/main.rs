//! What a confined thread may do, and how the process ends that does something else: each attempt in a process of its own, without KVM.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use perfvisor::confinement::{Confinement, Role};

mod attempts;
mod thread;
mod unheard;
mod work;

use thread::{CHILD, THREADS, Thread};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, option, thread, what] = &words[..]
        && option == CHILD
    {
        return child(thread, what);
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for thread in &THREADS {
        trials.push(trial(thread, "forbidden", attempts::end_the_process));
        trials.push(trial(thread, "forbidden_unheard", unheard::ends_all_the_same));
        trials.push(trial(thread, "work", work::goes_on));
    }
    trials.push(Trial::test("main_threads", || {
        work::threads_of_the_main_thread();
        Ok(())
    }));
    trials.push(Trial::test("not_confined", || {
        attempts::are_possible_without();
        Ok(())
    }));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(thread: &'static Thread, name: &str, test: fn(&Thread)) -> Trial {
    Trial::test(format!("{}_{name}", thread.0), move || -> Result<(), Failed> {
        test(thread);
        Ok(())
    })
}

fn child(thread: &str, what: &str) -> ExitCode {
    perfvisor::confinement::share_one_heap();
    perfvisor::confinement::panic_without_backtraces();
    attempts::PARENT.get_or_init(std::os::unix::process::parent_id);
    let found = THREADS.iter().find(|(name, ..)| *name == thread);
    let confinement = match found {
        Some((_, _, counting)) => Confinement::prepare(*counting).unwrap(),
        None => Confinement::none(),
    };
    confinement.enter(found.map_or(Role::Main, |(_, role, _)| *role));
    if attempts::make(what) || work::make(what, &confinement) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
