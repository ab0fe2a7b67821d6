//! Members that leave a family before their end: by a control of their own, an unlink, or an exec with CLOEXEC.

use anyhow::{Context, Result, ensure};
use libvperfctr::Vperfctr;
use libvperfctr::layout::{VperfctrControl, flag};
use libvperfctr::trace::Stopped;
use rustix::io::Errno;
use tests::workload::spin;

use super::family::become_role;
use super::root::{Root, inheriting};
use crate::check::Check;
use crate::expect::{equal, refused};
use crate::forked::Forked;
use crate::measured::{INSTRUCTIONS_AT, control};
use crate::older;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "children-with-a-control-of-their-own", run: with_a_control_of_their_own },
    Check { name: "children-that-unlink", run: that_unlink },
    Check { name: "children-unlinked-by-a-tracer", run: unlinked_by_a_tracer },
    Check { name: "children-of-a-tracee", run: of_a_tracee },
    Check { name: "children-close-on-exec", run: close_on_exec },
    Check { name: "control-close-on-exec", run: own_close_on_exec },
    Check { name: "ioctl-close-on-exec", run: close_on_exec_by_ioctl },
];

/// A child without counters.
pub(in super::super) const UNCOUNTED_ROLE: &str = "children-uncounted";

/// Counted up to the control, and what comes then is its own, with a family of its own.
fn with_a_control_of_their_own() -> Result<()> {
    Root::start()?.is_exact(1, |length| {
        let leaves = || {
            let Ok(state) = Vperfctr::open(0, false) else { return false };
            spin(length);
            let left = state.control(&inheriting()).is_ok();
            spin(5 * length);
            let own = Forked::start(|| {
                spin(7 * length);
                true
            });
            let own = own.is_ok_and(|child| child.succeeds().is_ok());
            left && own && state.children_sums().is_ok_and(|sums| sums.pmc[INSTRUCTIONS_AT] >= 7 * 4 * length)
        };
        Forked::start(leaves)?.succeeds()
    })
}

fn that_unlink() -> Result<()> {
    Root::start()?.is_exact(1, |length| {
        let leaves = || {
            let Ok(state) = Vperfctr::open(0, false) else { return false };
            spin(length);
            let left = state.unlink().is_ok();
            spin(5 * length);
            // A descendant of one that has left does not count.
            let own = Forked::start(|| {
                Vperfctr::open(0, false)
                    .and_then(|handle| handle.read())
                    .is_err_and(|error| error.errno() == Errno::INVAL)
            });
            left && own.is_ok_and(|child| child.succeeds().is_ok())
        };
        Forked::start(leaves)?.succeeds()
    })
}

/// A tracer finds the state, reads it, and takes it away: its counts are added at once, and once.
fn unlinked_by_a_tracer() -> Result<()> {
    let root = Root::start()?;
    let child = Forked::start(|| {
        loop {
            spin(1_000);
        }
    })?;
    let mut rounds = 0;
    let sums = loop {
        let stopped = Stopped::stop(child.pid())?;
        refused("creat of what is inherited", Vperfctr::open(stopped.tid(), true), Errno::EXIST)?;
        let state = Vperfctr::open(stopped.tid(), false)?;
        let (sums, seen) = state.read().context("the inherited state")?;
        equal("its control", seen, inheriting())?;
        equal("children's sums before it left", root.state.children_sums()?.pmc, [0; 18])?;
        rounds += 1;
        // It may not have run yet.
        if rounds >= 20 && sums.pmc[INSTRUCTIONS_AT] > 0 {
            state.unlink()?;
            equal("children's sums", root.state.children_sums()?, sums)?;
            break sums;
        }
    };
    child.kill();
    child.wait();
    equal("children's sums after its end", root.state.children_sums()?, sums)
}

/// A tracer makes a thread the root of a family.
fn of_a_tracee() -> Result<()> {
    const ITERATIONS: u64 = 1_000;
    let child = Forked::start(|| {
        loop {
            let spins = || {
                spin(ITERATIONS);
                true
            };
            if Forked::start(spins).is_ok_and(|child| child.succeeds().is_err()) {
                return false;
            }
        }
    })?;
    let stopped = Stopped::stop(child.pid())?;
    let state = Vperfctr::open(stopped.tid(), true)?;
    state.control(&inheriting())?;
    drop(stopped);
    // Sums of children are anybody's who has the descriptor, at any time.
    let mut sums = state.children_sums()?;
    while sums.pmc[INSTRUCTIONS_AT] < 20 * 4 * ITERATIONS {
        sums = state.children_sums()?;
    }
    refused("own sums of a running thread", state.sums(), Errno::SRCH)?;
    child.kill();
    child.wait();
    ensure!(state.sums()?.pmc[INSTRUCTIONS_AT] > 0, "the root itself did not count");
    Ok(())
}

/// In the child, after an exec that took its counters away.
pub(in super::super) fn uncounted() -> Result<()> {
    refused("a state after the exec", Vperfctr::open(0, false)?.read(), Errno::INVAL)?;
    spin(3_000_000);
    Ok(())
}

/// Exact, so nothing of the program after the exec is in it.
fn close_on_exec() -> Result<()> {
    let root = Root::start()?;
    root.state.control(&VperfctrControl { flags: flag::INHERIT | flag::CLOEXEC, ..control() })?;
    root.is_exact(1, |length| {
        let leaves = || {
            spin(length);
            become_role(UNCOUNTED_ROLE)
        };
        Forked::start(leaves)?.succeeds()
    })
}

fn own_close_on_exec() -> Result<()> {
    closes_on_exec(|state, control| state.control(control).is_ok())
}

fn close_on_exec_by_ioctl() -> Result<()> {
    closes_on_exec(|state, control| older::control(state, control).is_ok())
}

/// The flag without a family: a failed exec changes nothing, one that succeeds unlinks.
fn closes_on_exec(set: impl Fn(&Vperfctr, &VperfctrControl) -> bool) -> Result<()> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let child = Forked::start(|| {
        let Ok(state) = Vperfctr::open(0, true) else { return false };
        let closing = VperfctrControl { flags: flag::CLOEXEC, ..control() };
        set(&state, &closing)
            && libvperfctr::pass::send(&theirs, std::os::fd::AsFd::as_fd(&state)).is_ok()
            && super::family::cannot_exec()
            && state.read().is_ok_and(|(_, control)| control == closing)
            && {
                spin(1_000);
                become_role(UNCOUNTED_ROLE)
            }
    })?;
    let state = Vperfctr::from(libvperfctr::pass::receive(&ours).context("no descriptor came")?);
    child.succeeds()?;
    let (sums, seen) = state.read()?;
    equal("flags", seen.flags, flag::CLOEXEC)?;
    let counted = sums.pmc[INSTRUCTIONS_AT];
    ensure!((4_000..1_000_000).contains(&counted), "{counted} instructions up to the exec");
    refused("control after the exec", state.control(&control()), Errno::SRCH)
}
