//! Work that needs more vCPUs than one.

#![allow(unsafe_code)] // Inline assembly: the only way to know which instructions run.

use std::sync::{Arc, Barrier};
use std::thread;

use anyhow::{Context, Result, ensure};
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use super::check::{Check, INTERFACES, between, count, counted};
use super::interface::{Interface, Mode};
use crate::cpu::{cpus, on_cpu};

/// Times a thread moves in the shorter length, which is counted three times over in the longer.
const MOVES: u64 = 100;
/// Rounds of each thread's loop: long enough for a host to put other threads in its place many times.
const ROUNDS: u64 = 3_000_000;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for (interface, number) in INTERFACES {
        let name = |work: &str| format!("accuracy/{}-{number}/user/{work}", interface.name());
        checks.push(counted(name("migration"), move || {
            ensure!(cpus()? > 1, "one vCPU only");
            count(interface, Mode::User, number, moves, MOVES)
        }));
        checks.push(counted(name("all-vcpus"), move || on_all(interface, number)));
    }
    checks
}

/// The thread goes to the other of the first two vCPUs each time.
fn moves(n: u64) -> Result<u64> {
    let mut mask = 1u64;
    // SAFETY: the call reads the mask; the kernel changes the registers named.
    unsafe {
        core::arch::asm!(
            "2:",
            "mov eax, {call}",
            "xor edi, edi",
            "mov esi, 8",
            "mov rdx, {mask}",
            "xor dword ptr [rdx], 3",
            "syscall",
            "dec {n}",
            "jnz 2b",
            call = const libc::SYS_sched_setaffinity,
            mask = in(reg) &raw mut mask,
            n = inout(reg) n => _,
            out("rax") _,
            out("rdi") _,
            out("rsi") _,
            out("rdx") _,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    Ok(8)
}

/// A thread on each vCPU counts the same loop, all at once. The one that is farthest off stands for all.
fn on_all(interface: Interface, number: usize) -> Result<(u64, u64)> {
    let cpus = cpus()?;
    let together = Arc::new(Barrier::new(cpus));
    let one = move |cpu, together: Arc<Barrier>| -> Result<(u64, u64)> {
        let prepared = || {
            on_cpu(cpu)?;
            let mut counters = interface.open(Mode::User, number)?;
            counters.start()?;
            counters.read()?;
            Ok(counters)
        };
        let prepared: Result<_> = prepared();
        // Who has no counters does not keep the others waiting.
        together.wait();
        let mut counters = prepared?;
        let work = |n| {
            spin(n);
            Ok(INSTRUCTIONS_PER_ITERATION)
        };
        let (each, short) = between(&mut *counters, work, ROUNDS)?;
        let (_, long) = between(&mut *counters, work, 3 * ROUNDS)?;
        Ok((2 * ROUNDS * each, long.wrapping_sub(short)))
    };
    let threads: Vec<_> = (0..cpus)
        .map(|cpu| {
            let together = together.clone();
            thread::spawn(move || one(cpu, together))
        })
        .collect();
    let mut worst: Option<(u64, u64, u64)> = None;
    for thread in threads {
        let (known, counted) = thread.join().ok().context("it panicked")??;
        let error = known.abs_diff(counted);
        if worst.is_none_or(|(most, ..)| error > most) {
            worst = Some((error, known, counted));
        }
    }
    worst.map(|(_, known, counted)| (known, counted)).context("no vCPUs")
}
