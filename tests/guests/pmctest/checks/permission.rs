//! Who may count kernel mode: by the rules of the guest kernel's own perf.

#![allow(unsafe_code)] // Users and capabilities of one thread.

use std::fs;
use std::io;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libvperfctr::layout::{VperfctrControl, flag};
use libvperfctr::{Counter, Vperfctr, a_mode};
use rustix::io::Errno;
use tests::event::{INSTRUCTIONS, KERNEL_INSTRUCTIONS};
use tests::workload::spin;

use super::tracee::{ROUNDS_ROLE, Tracee};
use super::unprivileged::{NOBODY, role_of, succeeds};
use crate::check::Check;
use crate::expect::{equal, refused};
use crate::interrupting::twice;
use crate::measured::{Measured, control};
use crate::older::{self, nr};
use crate::sampled::sampling;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "permission-of-the-unprivileged", run: unprivileged },
    Check { name: "permission-by-the-sysctl", run: by_the_sysctl },
    Check { name: "permission-by-the-parameter", run: by_the_parameter },
    Check { name: "permission-by-capability", run: by_capability },
    Check { name: "permission-of-the-caller", run: of_the_caller },
    Check { name: "permission-dropped", run: dropped },
];

/// A child that is nobody, and may not.
pub(super) const REFUSED: &str = "permission-refused";
/// A child that is nobody, and may.
pub(super) const ALLOWED: &str = "permission-allowed";
/// A child that is root, and becomes nobody who may.
pub(super) const CAPABLE: &str = "permission-capable";

const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const ALLOW_KERNEL: &str = "/sys/module/perfctr/parameters/allow_kernel";
/// Bit 38 of the capabilities.
const CAP_PERFMON: u32 = 38;

/// What the two files say, until this is dropped.
pub(crate) struct Policy([(&'static str, String); 2]);

impl Policy {
    pub(crate) fn set(paranoid: i32, allow_kernel: bool) -> Result<Self> {
        let now = |file| Ok::<_, anyhow::Error>((file, fs::read_to_string(file).context(file)?));
        let before = Self([now(PARANOID)?, now(ALLOW_KERNEL)?]);
        fs::write(PARANOID, paranoid.to_string()).context(PARANOID)?;
        fs::write(ALLOW_KERNEL, if allow_kernel { "1" } else { "0" }).context(ALLOW_KERNEL)?;
        Ok(before)
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        self.0.iter().for_each(|(file, text)| drop(fs::write(file, text)));
    }
}

/// Every kind of counters that shows something of kernel mode.
fn of_kernel_mode() -> Result<[(&'static str, VperfctrControl); 6]> {
    let kernel = |pmc| Counter { evntsel: KERNEL_INSTRUCTIONS, escr: 0, pmc };
    let user = |pmc| Counter { evntsel: INSTRUCTIONS, escr: 0, pmc };
    let a_mode_of = |counters: &[Counter]| a_mode(true, counters);
    let both = Counter { evntsel: KERNEL_INSTRUCTIONS | INSTRUCTIONS, escr: 0, pmc: 0 };
    let alone = a_mode_of(&[kernel(0)])?;
    Ok([
        ("a-mode", alone),
        ("a-mode, the last of three", a_mode_of(&[user(0), user(1), kernel(2)])?),
        ("user and kernel mode", a_mode_of(&[both])?),
        ("inherited", VperfctrControl { flags: flag::INHERIT, ..alone }),
        ("i-mode", twice(KERNEL_INSTRUCTIONS, 100_000_000)?),
        ("samples", sampling(KERNEL_INSTRUCTIONS, 100_000_000)?),
    ])
}

/// Debian's own level 3 closes perf_event_open(2) to users; their own user mode it does not close here.
fn unprivileged() -> Result<()> {
    for paranoid in [2, 3, 4] {
        let policy = Policy::set(paranoid, false)?;
        succeeds(&mut role_of(NOBODY, REFUSED)).with_context(|| format!("perf_event_paranoid {paranoid}"))?;
        drop(policy);
    }
    Ok(())
}

/// In the child.
pub(super) fn is_refused() -> Result<()> {
    let state = Vperfctr::create()?;
    for (what, kernel) in of_kernel_mode()? {
        state.control(&control())?;
        refused(what, state.control(&kernel), Errno::ACCESS)?;
        equal("as after other refusals, cstatus", state.map()?.state().cstatus, 0)?;
    }
    state.unlink()?;
    let device = older::open(nr::CREAT, 0)?;
    for (what, kernel) in &of_kernel_mode()?[..3] {
        refused(what, older::control(&device, kernel), Errno::ACCESS)?;
    }
    device.unlink()?;
    let tracee = Tracee::start(ROUNDS_ROLE)?;
    let theirs = Vperfctr::open(tracee.tid(), true)?;
    for (what, kernel) in of_kernel_mode()? {
        refused(what, theirs.control(&kernel), Errno::ACCESS)?;
    }
    Measured::start()?.is_exact()
}

fn by_the_sysctl() -> Result<()> {
    for paranoid in [1, 0, -1] {
        let policy = Policy::set(paranoid, false)?;
        succeeds(&mut role_of(NOBODY, ALLOWED)).with_context(|| format!("perf_event_paranoid {paranoid}"))?;
        drop(policy);
    }
    Ok(())
}

fn by_the_parameter() -> Result<()> {
    let policy = Policy::set(3, true)?;
    let allowed = succeeds(&mut role_of(NOBODY, ALLOWED));
    drop(policy);
    allowed
}

/// In the child: it counts, and does not only seem to.
pub(super) fn is_allowed() -> Result<()> {
    equal("the user", rustix::process::geteuid().as_raw(), NOBODY)?;
    let state = Vperfctr::create()?;
    for (what, kernel) in of_kernel_mode()? {
        state.control(&kernel).with_context(|| what)?;
        rustix::thread::sched_yield();
        let sums = state.sums()?;
        ensure!(sums.pmc.iter().any(|&count| count > 100), "{what}: counted were {:?}", sums.pmc);
    }
    Ok(())
}

fn by_capability() -> Result<()> {
    let policy = Policy::set(3, false)?;
    let mut child = Command::new("/proc/self/exe");
    let allowed = succeeds(child.args(["--child", CAPABLE]));
    drop(policy);
    allowed
}

/// In the child.
pub(super) fn with_the_capability() -> Result<()> {
    become_nobody(Some(CAP_PERFMON))?;
    is_allowed()?;
    become_nobody(None)?;
    Vperfctr::open(0, false)?.unlink()?;
    is_refused()
}

/// This thread's effective user and rights; the process stays fit for dumps, and so for ptrace.
fn become_nobody(keeping: Option<u32>) -> Result<()> {
    let done = |answer: i64, what: &str| {
        ensure!(answer == 0, "{what}: {}", io::Error::last_os_error());
        Ok(())
    };
    // Version 3, this thread; effective, permitted and inheritable, of 32 bits each.
    let header = [0x2008_0522_u32, 0];
    let kept = keeping.map_or(0, |capability| 1 << (capability - 32));
    let sets = [0, 0, 0, kept, kept, 0_u32];
    // SAFETY: system calls that change this thread, which is the role's only one; the two structures are there.
    unsafe {
        done(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0).into(), "PR_SET_KEEPCAPS")?;
        let nobody = libc::c_long::from(NOBODY);
        done(libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody), "setresuid")?;
        done(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), "capset")?;
        done(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0).into(), "PR_SET_DUMPABLE")
    }
}

/// A control is its caller's, whoever the thread belongs to.
fn of_the_caller() -> Result<()> {
    let policy = Policy::set(3, false)?;
    let outcome = (|| {
        let tracee = Tracee::start_with(ROUNDS_ROLE, |command| {
            use std::os::unix::process::CommandExt;
            command.uid(NOBODY).gid(NOBODY);
        })?;
        let state = Vperfctr::open(tracee.tid(), true)?;
        let [(_, kernel), ..] = of_kernel_mode()?;
        state.control(&kernel).context("by root")?;
        tracee.continue_until(super::tracee::STOP)?;
        ensure!(state.sums()?.pmc[0] > 1000, "nothing was counted: {:?}", state.sums()?.pmc);
        Ok(())
    })();
    drop(policy);
    outcome
}

/// What was allowed goes on, as in perf; it cannot be begun again.
fn dropped() -> Result<()> {
    let policy = Policy::set(3, false)?;
    let outcome = crate::forked::Forked::start(|| {
        let seen = (|| {
            let state = Vperfctr::create()?;
            let [(_, kernel), ..] = of_kernel_mode()?;
            state.control(&kernel)?;
            become_nobody(None)?;
            let before = state.sums()?.pmc[0];
            spin(1000);
            rustix::thread::sched_yield();
            ensure!(state.sums()?.pmc[0] > before + 100, "it has stopped");
            refused("a control", state.control(&kernel), Errno::ACCESS)
        })();
        seen.is_ok()
    })?
    .succeeds();
    drop(policy);
    outcome
}
