//! Nobody may use RDPMC who does not count, not even for the moment in which the driver looks whether the kernel lets it.

#![allow(unsafe_code)] // RDPMC, and a signal handler that steps over it.

use std::arch::asm;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use libvperfctr::Driver;
use rustix::thread::{sched_setaffinity, sched_yield};

use super::unprivileged::{NOBODY, role_of};
use crate::check::Check;
use crate::placed::only;

pub(super) const CHECKS: &[Check] = &[Check { name: "trust-native-rdpmc-of-a-question", run: of_a_question }];

/// A child whose first thread asks what the driver offers, and whose second tries RDPMC meanwhile.
pub(super) const ASKER: &str = "trust-native-asker";
/// A child that makes the second thread's CPU change its address space.
pub(super) const OTHER: &str = "trust-native-other";

const QUESTIONS: u32 = 2_000;
const MINUS_TWO: u64 = u64::MAX - 1;

/// Threads of one process, on two CPUs: what one is given for a moment stays on the other's CPU until another process runs there.
fn of_a_question() -> Result<()> {
    let mut other = role_of(NOBODY, OTHER).stdin(Stdio::piped()).spawn()?;
    let status = role_of(NOBODY, ASKER).status();
    drop(other.stdin.take());
    other.wait()?;
    let status = status.context("the child did not start")?;
    ensure!(status.success(), "the child failed ({status}); its message is on standard error");
    Ok(())
}

static REFUSED: AtomicU32 = AtomicU32::new(0);

/// Steps over RDPMC, an instruction of two bytes. Its result is then what was in the register.
extern "C" fn step_over(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: a handler with SA_SIGINFO is given the interrupted context, which is its own to change.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] += 2 };
}

fn handle_refusals() -> Result<()> {
    // SAFETY: all zero is a good sigaction; the handler changes an atomic and its own context.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = step_over as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut())
    };
    ensure!(done == 0, "sigaction: {}", std::io::Error::last_os_error());
    Ok(())
}

/// What RDPMC reads; no counter's value if it is refused.
fn try_rdpmc() -> Option<u64> {
    let (low, high): (u64, u64);
    // SAFETY: reads a register; the handler steps over it where it faults.
    unsafe {
        asm!("rdpmc", in("ecx") 0, inout("rax") MINUS_TWO => low, inout("rdx") MINUS_TWO => high, options(nomem, nostack));
    }
    (high != MINUS_TWO).then_some(high << 32 | low)
}

/// In a child.
pub(super) fn asker() -> Result<()> {
    handle_refusals()?;
    sched_setaffinity(None, &only(0))?;
    let over = AtomicBool::new(false);
    let (tries, read) = thread::scope(|scope| {
        let trying = scope.spawn(|| -> Result<(u32, u32)> {
            sched_setaffinity(None, &only(1))?;
            let (mut tries, mut read) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                sched_yield();
                tries += 1;
                read += u32::from(try_rdpmc().is_some());
            }
            Ok((tries, read))
        });
        let asked = (0..QUESTIONS).try_for_each(|_| Driver::query().map(drop));
        over.store(true, Ordering::Relaxed);
        let tried = trying.join().ok().context("the other thread panicked")??;
        asked?;
        anyhow::Ok(tried)
    })?;
    let refused = REFUSED.load(Ordering::Relaxed);
    ensure!(read == 0, "RDPMC was let {read} times of {tries} to a process without counters");
    ensure!(refused == tries && tries > 50, "{refused} refusals of {tries}");
    Ok(())
}

/// In a child: runs in turns with whoever is on that CPU, until its standard input ends.
pub(super) fn other() -> Result<()> {
    sched_setaffinity(None, &only(1))?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                sched_yield();
            }
        });
        // It reads nothing but the end.
        let ended = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        over.store(true, Ordering::Relaxed);
        ended
    })?;
    Ok(())
}
