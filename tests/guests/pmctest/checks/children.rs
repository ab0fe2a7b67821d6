//! Inheritance: what children count is added to the children's sums when they end, to the event.

#![allow(unsafe_code)] // Threads without std.

mod family;
mod leaving;
mod root;

use std::cell::Cell;
use std::ffi::c_void;
use std::io::Read;
use std::ptr::{null, null_mut};

use anyhow::{Result, ensure};
use tests::workload::spin;

use self::root::{Root, beyond};
use crate::check::Check;
use crate::forked::Forked;

pub(super) fn checks() -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().chain(family::CHECKS).chain(leaving::CHECKS)
}

const CHECKS: &[Check] = &[
    Check { name: "children-processes", run: processes },
    Check { name: "children-threads", run: threads },
    Check { name: "children-of-children", run: of_children },
    Check { name: "children-that-outlive-their-parents", run: that_outlive_their_parents },
    Check { name: "children-everywhere", run: everywhere },
];

pub(super) use family::{EXEC_ROLE, after_exec};
pub(super) use leaving::{UNCOUNTED_ROLE, uncounted};

fn spins(iterations: u64) -> bool {
    spin(iterations);
    true
}

/// The parent's own sums hold nothing of it.
fn processes() -> Result<()> {
    let root = Root::start()?;
    let own = Cell::new(None);
    root.is_exact(1, |length| {
        let before = root.state.sums()?;
        Forked::start(|| spins(length))?.succeeds()?;
        let seen = beyond(&before, &root.state.sums()?, 0)?;
        // The first child's parent takes other page faults.
        if length > 1 {
            let before = own.replace(Some(seen)).unwrap_or(seen);
            ensure!(seen == before, "length {length}: the parent counted {seen:?}, before it was {before:?}");
        }
        Ok(())
    })
}

/// Also at once after a join, which does not wait for the whole of a thread's end.
fn threads() -> Result<()> {
    let root = Root::start()?;
    for _ in 0..5 {
        root.is_exact(1, spins_in_a_thread)?;
    }
    Ok(())
}

extern "C" fn spin_in_a_thread(length: *mut c_void) -> *mut c_void {
    spin(length as u64);
    null_mut()
}

/// Without what std's threads do besides, which depends on who comes first.
fn spins_in_a_thread(length: u64) -> Result<()> {
    let mut thread = 0;
    // SAFETY: the thread gets a number for a pointer and uses it as a number; it is joined once.
    unsafe {
        ensure!(libc::pthread_create(&mut thread, null(), spin_in_a_thread, length as *mut c_void) == 0);
        ensure!(libc::pthread_join(thread, null_mut()) == 0);
    }
    Ok(())
}

/// What children's children count goes to the root, once.
fn of_children() -> Result<()> {
    let generation = |length, next: &dyn Fn() -> bool| {
        spin(length);
        Forked::start(next).is_ok_and(|child| child.succeeds().is_ok())
    };
    Root::start()?.is_exact(6, |length| {
        let youngest = || spins(3 * length);
        let middle = || generation(2 * length, &youngest);
        Forked::start(|| generation(length, &middle))?.succeeds()
    })
}

/// A child that ends first passes on what its own child has yet to count.
fn that_outlive_their_parents() -> Result<()> {
    Root::start()?.is_exact(3, |length| {
        let (mut ended, ends) = std::io::pipe()?;
        let child = Forked::start(|| {
            spin(length);
            // A process without a parent after this one: nobody waits for it but who reads the pipe.
            Forked::start(|| spins(2 * length)).map(std::mem::forget).is_ok()
        })?;
        child.succeeds()?;
        drop(ends);
        // Its files close after its counts are added.
        ended.read_to_end(&mut Vec::new())?;
        Ok(())
    })
}

/// Families beside each other, on all processors, each child with a short life.
fn everywhere() -> Result<()> {
    const PARENTS: u64 = 4;
    const CHILDREN: u64 = 4;
    Root::start()?.is_exact_with(&[1, 1, 50_000, 7], PARENTS * CHILDREN, |length| {
        let child = || Forked::start(|| spins(length)).is_ok_and(|child| child.succeeds().is_ok());
        let parent = || (0..CHILDREN).all(|_| child());
        let parents: Vec<Forked> = (0..PARENTS).map(|_| Forked::start(parent)).collect::<Result<_>>()?;
        parents.into_iter().try_for_each(Forked::succeeds)
    })
}
