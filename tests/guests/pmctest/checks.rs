//! All checks, by subject.

pub(crate) mod calls;
mod children;
mod exact;
mod family;
pub(crate) mod file;
mod forbidden;
mod global_mode;
mod info;
pub(crate) mod inherit;
mod ioctl;
mod leak;
mod lifetime;
mod loading;
mod mapping;
mod nmi;
pub(crate) mod overflow;
mod passed;
pub(crate) mod permission;
mod pointers;
mod pv;
mod reading;
mod registers;
mod samples;
mod sequence;
mod setuid;
mod state;
mod thirty_two;
pub(crate) mod tracee;
mod trust;
mod trust_native;
mod trust_rdpmc;
pub(crate) mod unprivileged;
mod vperfctr_control;

use anyhow::{Result, bail};

use crate::check::Check;

pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        info::CHECKS,
        calls::CHECKS,
        vperfctr_control::CHECKS,
        pointers::CHECKS,
        mapping::CHECKS,
        sequence::CHECKS,
        lifetime::CHECKS,
        inherit::CHECKS,
        exact::CHECKS,
        family::CHECKS,
        tracee::CHECKS,
        passed::CHECKS,
        state::CHECKS,
        file::CHECKS,
        reading::CHECKS,
        unprivileged::CHECKS,
        trust::CHECKS,
        permission::CHECKS,
        nmi::CHECKS,
        thirty_two::CHECKS,
        global_mode::CHECKS,
        setuid::CHECKS,
        leak::CHECKS,
        pv::CHECKS,
        registers::CHECKS,
        trust_native::CHECKS,
        trust_rdpmc::CHECKS,
        forbidden::CHECKS,
        loading::CHECKS,
    ]
    .into_iter()
    .flatten()
    .chain(ioctl::checks())
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
        passed::GIVES => passed::gives(),
        permission::REFUSED => permission::is_refused(),
        permission::ALLOWED => permission::is_allowed(),
        permission::CAPABLE => permission::with_the_capability(),
        unprivileged::COUNTER => unprivileged::counter(),
        unprivileged::NEIGHBOUR => unprivileged::neighbour(),
        unprivileged::PRYING => unprivileged::prying(),
        trust_native::SPY => trust_native::spy(),
        trust_native::FORMER_SPY => trust_native::former_spy(),
        trust_native::VICTIM => trust_native::victim(),
        trust_rdpmc::ASKER => trust_rdpmc::asker(),
        trust_rdpmc::OTHER => trust_rdpmc::other(),
        trust::STRANGER => trust::stranger(),
        trust::PAGE => trust::page(),
        trust::OVERFLOW => trust::overflow(),
        trust::SAMPLES => trust::samples(),
        setuid::SETUID => setuid::program(),
        setuid::TRACER => setuid::tracer(),
        crate::fuzz::ROLE => crate::fuzz::caller(),
        overflow::EXEC_DIES => overflow::exec_dies(),
        _ => bail!("there is no such role"),
    }
}
