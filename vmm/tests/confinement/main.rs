//! What a confined thread may do, and how the process ends that does something else: each attempt in a process of its own, without KVM.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Failed, Trial};
use perfvisor::confinement::{Confinement, Counting, Role};

mod attempts;
mod unheard;
mod work;

/// Of a child: then the role, what it counts with, and what to do.
const CHILD: &str = "--as";

/// Each kind of thread; a vCPU's by what it counts with.
const THREADS: [(&str, Role, Counting); 7] = [
    ("main", Role::Main, Counting::Perf),
    ("vcpu-nothing", Role::Vcpu(3), Counting::Nothing),
    ("vcpu-perf", Role::Vcpu(3), Counting::Perf),
    ("vcpu-module", Role::Vcpu(3), Counting::Module),
    ("vcpu-kvm", Role::Vcpu(3), Counting::Kvm),
    ("console", Role::Console, Counting::Perf),
    ("control", Role::Control, Counting::Perf),
];

/// How the message names it.
fn title(role: Role) -> &'static str {
    match role {
        Role::Main => "the main thread",
        Role::Vcpu(_) => "the thread of vCPU 3",
        Role::Console => "the serial console's thread",
        Role::Control => "a control thread",
    }
}

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

/// Of a kind of thread.
type Thread = (&'static str, Role, Counting);

fn trial(thread: &'static Thread, name: &str, test: fn(&Thread)) -> Trial {
    Trial::test(format!("{}_{name}", thread.0), move || -> Result<(), Failed> {
        test(thread);
        Ok(())
    })
}

/// A child that is such a thread, or is not confined.
fn child_of(thread: &str, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([CHILD, thread, what]).env("RUST_BACKTRACE", "1");
    command
}

fn run(thread: &str, what: &str) -> Output {
    child_of(thread, what).output().unwrap()
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

fn said(output: &Output) -> String {
    format!(
        "status {:?}, signal {:?}, {}{}",
        output.status.code(),
        output.status.signal(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
