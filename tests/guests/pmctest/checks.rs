//! All checks, by subject.

mod calls;
mod control;
mod door;
mod exact;
mod forbidden;
mod global;
mod info;
mod inherit;
mod ioctl;
mod leak;
mod lifetime;
mod mapping;
mod overflow;
mod pointers;
mod thirty_two;
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
        lifetime::CHECKS,
        inherit::CHECKS,
        exact::CHECKS,
        tracee::CHECKS,
        thirty_two::CHECKS,
        global::CHECKS,
        leak::CHECKS,
        door::CHECKS,
        forbidden::CHECKS,
    ]
    .into_iter()
    .flatten()
    .chain(ioctl::checks())
    .chain(overflow::checks())
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
        overflow::EXEC_DIES => overflow::exec_dies(),
        _ => bail!("there is no such role"),
    }
}
