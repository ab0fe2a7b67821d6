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
//! as not run, each with the reason.

mod answers;
mod boot;
mod case;
mod cases;
mod dump;
mod guests;
mod perfvisor;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One guest at a time has the lab's CPUs, and waiting for another's turn must not count as its time.
    arguments.test_threads = Some(1);
    let is_wanted = |name: &str| {
        arguments.filter.as_ref().is_none_or(|filter| name.contains(filter))
            && !arguments.skip.iter().any(|skip| name.contains(skip))
    };
    let command_line = cases::COMMAND_LINE
        .iter()
        .map(|(name, test)| Trial::test(format!("command-line::{name}"), move || test().map_err(failed)));
    let trials =
        guests::ALL.iter().flat_map(|guest| guests::trials(guest, is_wanted)).chain(command_line).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The whole chain of causes.
fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}
