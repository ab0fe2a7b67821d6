//! The kinds of threads that are confined, and children of this test that are one of them.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use perfvisor::confinement::{Counting, Role};

/// Of a child: then the role, what it counts with, and what to do.
pub(crate) const CHILD: &str = "--as";

/// Each kind of thread; a vCPU's by what it counts with.
pub(crate) const THREADS: [(&str, Role, Counting); 7] = [
    ("main", Role::Main, Counting::Perf),
    ("vcpu-nothing", Role::Vcpu(3), Counting::Nothing),
    ("vcpu-perf", Role::Vcpu(3), Counting::Perf),
    ("vcpu-module", Role::Vcpu(3), Counting::Module),
    ("vcpu-kvm", Role::Vcpu(3), Counting::Kvm),
    ("console", Role::Console, Counting::Perf),
    ("control", Role::Control, Counting::Perf),
];

/// How the message names it.
pub(crate) fn title(role: Role) -> &'static str {
    match role {
        Role::Main => "the main thread",
        Role::Vcpu(_) => "the thread of vCPU 3",
        Role::Console => "the serial console's thread",
        Role::Control => "a control thread",
    }
}

/// Of a kind of thread.
pub(crate) type Thread = (&'static str, Role, Counting);

/// A child that is such a thread, or is not confined.
pub(crate) fn child_of(thread: &str, what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([CHILD, thread, what]).env("RUST_BACKTRACE", "1");
    command
}

pub(crate) fn run(thread: &str, what: &str) -> Output {
    child_of(thread, what).output().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    format!(
        "status {:?}, signal {:?}, {}{}",
        output.status.code(),
        output.status.signal(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
