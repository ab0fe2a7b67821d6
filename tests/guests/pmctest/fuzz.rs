//! A user without privileges calls the driver with everything that can go wrong, for as long as wanted.
//!
//! Arguments are good ones, mutated. The same seed makes the same choices, one after the other; what the kernel answers
//! depends on time as well, where counters run. What must hold: nothing is done to anybody's memory but the caller's
//! buffers, the program goes on, its counts are exact whenever it looks, the kernel says nothing, and nothing is left.

mod arena;
mod calls;
mod ioctls;
mod mappings;
mod tracee;

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use libvperfctr::Vperfctr;

use self::calls::Caller;
use crate::check::verdict;
use crate::checks::file::{final_references, no_more_than};
use crate::checks::permission::Policy;
use crate::checks::unprivileged::{NOBODY, role_of};
use crate::expect::equal;
use crate::kernel_log::KernelLog;
use crate::measured::Measured;
use crate::random::Random;

/// The part that has no privileges.
pub(crate) const ROLE: &str = "fuzz";
/// How long and with which seed, for [`ROLE`].
const HOW: &str = "PMCTEST_FUZZ";
/// Callers at the same time: they share nothing but the driver.
const CALLERS: u64 = 3;
/// Calls between two looks at whether counts are exact.
const CALLS: u64 = 500;

/// Prints the lines of three checks; whether all passed. For root, who reads the kernel's log.
pub(crate) fn run(length: Duration, seed: u64) -> bool {
    let outcome = (|| -> Result<bool> {
        let mut log = KernelLog::begin()?;
        // Counters of kernel mode are some of what can go wrong.
        let _policy = Policy::set(2, true)?;
        let references = final_references()?;
        let passed = verdict("fuzz-unprivileged", &callers(length, seed));
        let passed = verdict("fuzz-nothing-left", &no_more_than(references)) && passed;
        Ok(verdict("fuzz-kernel-log", &log.is_clean()) && passed)
    })();
    outcome.unwrap_or_else(|error| verdict("fuzz-unprivileged", &Err(error)))
}

fn callers(length: Duration, seed: u64) -> Result<()> {
    let start = |number| {
        let how = format!("{} {}", length.as_secs(), seed + number);
        Ok((seed + number, role_of(NOBODY, ROLE).env(HOW, how).spawn()?))
    };
    let children: Vec<_> = (0..CALLERS).map(start).collect::<Result<_>>()?;
    let mut outcome = Ok(());
    for (seed, mut child) in children {
        let status = child.wait()?;
        if !status.success() {
            println!("seed {seed}: {status}");
            outcome = Err(anyhow!("the caller with seed {seed} ended with {status}"));
        }
    }
    outcome
}

/// In the child.
pub(crate) fn caller() -> Result<()> {
    equal("the user", rustix::process::geteuid().as_raw(), NOBODY)?;
    let how = env::var(HOW)?;
    let (seconds, seed) = how.split_once(' ').context("no length and seed")?;
    let (length, seed): (_, u64) = (Duration::from_secs(seconds.parse()?), seed.parse()?);
    let begun = Instant::now();
    let mut caller = Caller::new(Random::new(seed))?;
    let mut round = 0;
    while begun.elapsed() < length {
        (0..CALLS).for_each(|_| caller.call());
        caller.look().and_then(|()| exact()).with_context(|| format!("seed {seed}, after round {round}"))?;
        round += 1;
    }
    println!("seed {seed}: {}", caller.tally());
    ensure!(round > 0, "not one round was over in {seconds} s");
    caller.has_reached_everything()
}

/// Counts are as exact as ever: in the thread that called, and in a new one.
fn exact() -> Result<()> {
    let look = || Measured::start()?.is_exact_with(&[1, 300, 20_000], || ());
    Vperfctr::open(0, false)?.unlink().or_else(|error| match error.errno() {
        // There is none.
        rustix::io::Errno::INVAL => Ok(()),
        _ => Err(error),
    })?;
    look()?;
    Vperfctr::open(0, false)?.unlink()?;
    thread::spawn(look).join().ok().context("panicked")?
}
