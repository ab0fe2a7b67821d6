//! What begins and ends a family: flags, controls, stop and unlink of the root, exec and the end of its members.

#![allow(unsafe_code)] // Calls with bad pointers, and exec in a forked child.

use std::io::{PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{SumCtrs, VperfctrControl, flag};
use libvperfctr::{Vperfctr, sys};
use rustix::io::Errno;
use tests::event::INSTRUCTIONS;
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use super::root::{Beyond, Root, beyond, inheriting};
use crate::check::Check;
use crate::expect::{equal, refused};
use crate::forked::Forked;
use crate::interrupting::twice;
use crate::measured::{BRANCHES_AT, INSTRUCTIONS_AT, Measured, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "children-asked-for", run: asked_for },
    Check { name: "children-refusals", run: refusals },
    Check { name: "children-after-stop-and-unlink", run: after_stop_and_unlink },
    Check { name: "children-of-a-new-control", run: of_a_new_control },
    Check { name: "children-exec", run: exec },
    Check { name: "children-killed", run: killed },
];

/// A child that counts after an exec because its parent's parent does.
pub(in super::super) const EXEC_ROLE: &str = "children-exec";

/// Iterations of a child whose length does not matter.
const ITERATIONS: u64 = 100_000;

/// Without the flag nobody inherits, and the flags are what was set.
fn asked_for() -> Result<()> {
    let measured = Measured::start()?;
    equal("flags", measured.state.read()?.1.flags, 0)?;
    Forked::start(|| {
        Vperfctr::open(0, false)
            .and_then(|handle| handle.read())
            .is_err_and(|error| error.errno() == Errno::INVAL)
    })?
    .succeeds()?;
    equal("children's sums", measured.state.children_sums()?, SumCtrs::default())?;
    let both = flag::INHERIT | flag::CLOEXEC;
    measured.state.control(&VperfctrControl { flags: both, ..control() })?;
    equal("flags", measured.state.read()?.1.flags, both)?;
    measured.state.stop()?;
    equal("flags of a stopped state", measured.state.read()?.1.flags, 0)
}

fn refusals() -> Result<()> {
    let state = Vperfctr::create()?;
    let nothing = Forked::start(|| {
        Vperfctr::open(0, false)
            .and_then(|handle| handle.children_sums())
            .is_err_and(|error| error.errno() == Errno::INVAL)
    })?;
    nothing.succeeds().context("children's sums where there is no state")?;
    for flags in [2, 0x8000_0000, 0x4_0000, flag::INHERIT | 0x10] {
        let unknown = state.control(&VperfctrControl { flags, ..control() });
        refused("an unknown flag", unknown, Errno::INVAL)?;
    }
    let interrupting = VperfctrControl { flags: flag::INHERIT, ..twice(INSTRUCTIONS, 1000)? };
    refused("inherited interrupts", state.control(&interrupting), Errno::INVAL)?;
    equal("cstatus", state.map()?.state().cstatus, 0)?;
    state.control(&inheriting())?;
    for pointer in [null_mut(), without_provenance_mut(1), without_provenance_mut(1 << 63)] {
        // SAFETY: nothing of ours is there.
        let answer = unsafe { sys::read_children(state.as_fd(), pointer) };
        refused("a bad pointer", answer, Errno::FAULT)?;
    }
    Ok(())
}

/// A child that waits to be let go, and then works.
struct Held {
    child: Forked,
    release: PipeWriter,
}

impl Held {
    fn start() -> Result<Self> {
        let (mut wait, release) = pipe()?;
        let child = Forked::start(|| {
            let released = wait.read(&mut [0]).is_ok_and(|bytes| bytes == 1);
            spin(ITERATIONS);
            released
        })?;
        Ok(Self { child, release })
    }

    fn run_to_its_end(mut self) -> Result<()> {
        self.release.write_all(&[0])?;
        self.child.succeeds()
    }
}

/// What a child that was held meanwhile counts besides its iterations.
fn held(state: &Vperfctr, meanwhile: impl FnOnce() -> Result<()>) -> Result<Beyond> {
    let before = state.children_sums()?;
    let child = Held::start()?;
    meanwhile()?;
    child.run_to_its_end()?;
    beyond(&before, &state.children_sums()?, ITERATIONS)
}

/// They concern the root's own counters; its children go on.
fn after_stop_and_unlink() -> Result<()> {
    let root = Root::start()?;
    held(&root.state, || Ok(())).context("the first child, with its page faults")?;
    let usual = held(&root.state, || Ok(()))?;
    equal("with a stopped root", held(&root.state, || Ok(root.state.stop()?))?, usual)?;
    let sums = root.state.children_sums()?;
    Held::start()?.run_to_its_end()?;
    equal("children's sums after a child of a stopped root", root.state.children_sums()?, sums)?;
    root.state.control(&inheriting())?;
    equal("with an unlinked root", held(&root.state, || Ok(root.state.unlink()?))?, usual)?;
    let last = root.state.children_sums()?;
    Held::start()?.run_to_its_end()?;
    equal("children's sums after the root's end", root.state.children_sums()?, last)
}

/// It begins anew: sums restart but for what it preserves, and children of before are not added.
fn of_a_new_control() -> Result<()> {
    let root = Root::start()?;
    held(&root.state, || Ok(())).context("the first child, with its page faults")?;
    let usual = held(&root.state, || Ok(()))?;

    let old = Held::start()?;
    root.state.control(&inheriting())?;
    let fresh = root.state.children_sums()?;
    equal("children's sums after a control", fresh.pmc, SumCtrs::default().pmc)?;
    let new = Held::start()?;
    old.run_to_its_end()?;
    equal("children's sums after the end of an older child", root.state.children_sums()?, fresh)?;
    new.run_to_its_end()?;
    let sums = root.state.children_sums()?;
    equal("a child of the new control", beyond(&fresh, &sums, ITERATIONS)?, usual)?;

    root.state.control(&VperfctrControl { preserve: 1 << INSTRUCTIONS_AT, ..inheriting() })?;
    let kept = root.state.children_sums()?;
    equal("the preserved sum", kept.pmc[INSTRUCTIONS_AT], sums.pmc[INSTRUCTIONS_AT])?;
    equal("the other sum", kept.pmc[BRANCHES_AT], 0)?;
    equal("the TSC's sum", kept.tsc, sums.tsc)?;
    let mut without_tsc = inheriting();
    without_tsc.cpu_control.tsc_on = 0;
    root.state.control(&without_tsc)?;
    equal("sums of a control without the TSC", root.state.children_sums()?, SumCtrs::default())
}

/// Replace the program with this one's part `role`.
pub(super) fn become_role(role: &str) -> bool {
    // Without memory from the heap, which may be locked in a forked child.
    let mut name = [0; 32];
    name[..role.len()].copy_from_slice(role.as_bytes());
    let arguments = [c"pmctest".as_ptr(), c"--child".as_ptr(), name.as_ptr().cast(), null()];
    // SAFETY: all are strings that live as long as this program, and the list has its end.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), arguments.as_ptr()) };
    false
}

/// An exec that fails, and leaves everything as it was.
pub(super) fn cannot_exec() -> bool {
    let arguments = [c"nothing".as_ptr(), null()];
    // SAFETY: as above.
    unsafe { libc::execv(c"/proc/nothing".as_ptr(), arguments.as_ptr()) < 0 }
}

/// Iterations after an exec.
const AFTER_EXEC: u64 = 2_000_000;

fn exec() -> Result<()> {
    let root = Root::start()?;
    let beyond = root.beyond(AFTER_EXEC, || Forked::start(|| become_role(EXEC_ROLE))?.succeeds())?;
    let most = AFTER_EXEC * INSTRUCTIONS_PER_ITERATION / 2;
    ensure!(beyond.0 < most, "{} instructions besides the iterations", beyond.0);
    Ok(())
}

/// In the child: it has counters that it did not make.
pub(in super::super) fn after_exec() -> Result<()> {
    refused("creat of what is inherited", Vperfctr::open(0, true), Errno::EXIST)?;
    let state = Vperfctr::open(0, false)?;
    let (before, seen) = state.read()?;
    equal("the control", seen, inheriting())?;
    spin(AFTER_EXEC);
    let counted = state.sums()?.pmc[INSTRUCTIONS_AT] - before.pmc[INSTRUCTIONS_AT];
    ensure!(counted >= AFTER_EXEC * INSTRUCTIONS_PER_ITERATION, "{counted} instructions");
    equal("children's sums of a child", state.children_sums()?, SumCtrs::default())
}

/// Whatever a family is killed in, nothing of it stays in the kernel, and what it counted is added.
fn killed() -> Result<()> {
    let references = references()?;
    let root = Root::start()?;
    for delay in 0..10 {
        let (mut ended, ends) = pipe()?;
        let forks = || loop {
            if Forked::start(|| true).is_ok_and(|child| child.succeeds().is_err()) {
                return false;
            }
        };
        let before = root.state.children_sums()?;
        let family: Vec<Forked> = (0..3).map(|_| Forked::start(forks)).collect::<Result<_>>()?;
        thread::sleep(Duration::from_micros(1_000 * delay));
        family.iter().for_each(Forked::kill);
        for child in family {
            equal("what ended the child", child.wait(), libc::SIGKILL)?;
        }
        drop(ends);
        ended.read_to_end(&mut Vec::new())?;
        beyond(&before, &root.state.children_sums()?, 0)?;
    }
    ensure!(root.state.children_sums()?.pmc[INSTRUCTIONS_AT] > 0, "nothing was counted");
    root.state.unlink()?;
    drop(root);
    // A child killed at its birth lets go last of all, after its files.
    let deadline = Instant::now() + Duration::from_secs(5);
    while self::references()? != references {
        ensure!(
            Instant::now() < deadline,
            "{} references to the module stay",
            self::references()? - references
        );
        thread::sleep(Duration::from_millis(1));
    }
    Measured::start()?.is_exact()
}

/// What keeps the module from being unloaded: states, files, work under way.
fn references() -> Result<i64> {
    Ok(fs::read_to_string("/sys/module/perfctr/refcnt")?.trim().parse()?)
}
