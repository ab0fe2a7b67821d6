//! All checks, by subject.

mod calls;
mod children;
mod control;
mod door;
mod exact;
mod info;
mod inherit;
mod leak;
mod lifetime;
mod mapping;
mod overflow;
mod pointers;
mod samples;
mod sequence;
mod tracee;

use anyhow::{Result, bail};

use crate::Check;

pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        info::CHECKS,
        calls::CHECKS,
        control::CHECKS,
        pointers::CHECKS,
        mapping::CHECKS,
        sequence::CHECKS,
        lifetime::CHECKS,
        inherit::CHECKS,
        exact::CHECKS,
        tracee::CHECKS,
        leak::CHECKS,
        door::CHECKS,
    ]
    .into_iter()
    .flatten()
    .chain(overflow::checks())
    .chain(samples::checks())
    .chain(children::checks())
}

/// The part of a check that runs in a process of its own.
pub(crate) fn child(role: &str) -> Result<()> {
    match role {
        inherit::BYSTANDER => Ok(()),
        inherit::KEPT => inherit::kept(),
        inherit::GIVER => inherit::giver(),
        inherit::VICTIM => inherit::victim(),
        tracee::ROUNDS_ROLE => tracee::rounds(),
        tracee::EXECS_ROLE => tracee::execs(),
        samples::UNPRIVILEGED => samples::unprivileged(),
        children::EXEC_ROLE => children::after_exec(),
        children::UNCOUNTED_ROLE => children::uncounted(),
        overflow::EXEC_DIES => overflow::exec_dies(),
        _ => bail!("there is no such role"),
    }
}
