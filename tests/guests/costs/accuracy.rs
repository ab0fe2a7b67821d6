//! Counts of what is known: instructions of loops written in assembly, and of nothing at all.
//!
//! Each piece of work is done in two lengths between three readings. The readings' own instructions are in both differences, so
//! the longer less the shorter must be the known number.

mod check;
pub(crate) mod interface;
mod nothing;
mod outside;
mod vcpus;
mod work;

use check::{Check, INTERFACES, count, counted};
use interface::Mode;
use work::WORK;

/// All of them.
pub(crate) fn checks() -> Vec<Check> {
    let mut checks = nothing::checks();
    for (interface, number) in INTERFACES {
        for (work, length, run) in WORK {
            let name = format!("accuracy/{}-{number}/user/{work}", interface.name());
            checks.push(counted(name, move || count(interface, Mode::User, number, run, length)));
        }
    }
    checks.extend(outside::checks());
    checks.extend(vcpus::checks());
    checks
}
