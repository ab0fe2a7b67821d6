//! Work of which every instruction in user mode is known: assembly, with exceptions, system calls and signals in between.

#![allow(unsafe_code)] // Inline assembly: the only way to know which instructions run. A signal handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use tests::workload::{INSTRUCTIONS_PER_EMULATED_ROUND, INSTRUCTIONS_PER_ITERATION, emulated, spin};

use crate::cpu::on_first_cpu;

/// Does something n times; returns how many instructions of user mode each time has.
pub(super) type Work = fn(u64) -> Result<u64>;

/// With the shorter length; the longer is three times that.
pub(super) const WORK: [(&str, u64, Work); 7] = [
    ("loop", 1_000_000, |n| {
        spin(n);
        Ok(INSTRUCTIONS_PER_ITERATION)
    }),
    ("emulated", 1_000, |n| {
        emulated(n);
        Ok(INSTRUCTIONS_PER_EMULATED_ROUND)
    }),
    ("page-faults", 200, page_faults),
    ("system-calls", 2_000, |n| Ok(calls(libc::SYS_getppid, n))),
    ("rep-strings", 1_000, strings),
    ("signals", 300, signals),
    ("context-switches", 300, storm),
];

/// Write to pages that nobody has written to: each is a fault, after which the instruction is executed again.
fn page_faults(n: u64) -> Result<u64> {
    let length = n as usize * 4096;
    // SAFETY: new memory, unmapped below after its last use.
    unsafe {
        let pages = mmap_anonymous(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )?;
        core::arch::asm!(
            "2:",
            "mov byte ptr [{p}], 1",
            "add {p}, 4096",
            "dec {n}",
            "jnz 2b",
            p = inout(reg) pages => _,
            n = inout(reg) n => _,
            options(nostack),
        );
        munmap(pages, length)?;
    }
    Ok(4)
}

/// A system call without arguments.
fn calls(number: i64, n: u64) -> u64 {
    // SAFETY: the call changes no memory of ours; the kernel changes the registers named.
    unsafe {
        core::arch::asm!(
            "2:",
            "mov rax, {number}",
            "syscall",
            "dec {n}",
            "jnz 2b",
            number = in(reg) number,
            n = inout(reg) n => _,
            out("rax") _,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    4
}

/// A repeated string instruction is one instruction.
fn strings(n: u64) -> Result<u64> {
    let mut buffer = [0u8; 4096];
    // SAFETY: each round writes the buffer from its beginning to its end.
    unsafe {
        core::arch::asm!(
            "2:",
            "mov rdi, {buffer}",
            "mov ecx, 4096",
            "rep stosb",
            "dec {n}",
            "jnz 2b",
            buffer = in(reg) buffer.as_mut_ptr(),
            n = inout(reg) n => _,
            in("al") 1u8,
            out("rdi") _,
            out("rcx") _,
            options(nostack),
        );
    }
    std::hint::black_box(&buffer);
    Ok(5)
}

core::arch::global_asm!(".globl costs_return", "costs_return:", "ret");
unsafe extern "C" {
    fn costs_return(signal: libc::c_int);
}

/// The thread sends itself a signal, whose handler is one instruction; the C library returns from it by two.
fn signals(n: u64) -> Result<u64> {
    // SAFETY: the handler touches nothing; the structure is valid.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = costs_return as *const () as usize;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut())
    };
    ensure!(done == 0, "sigaction: {}", std::io::Error::last_os_error());
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: the kernel changes the registers named; what the handler's frame needs below the stack pointer it leaves.
    unsafe {
        core::arch::asm!(
            "2:",
            "mov eax, {tkill}",
            "mov edi, {thread:e}",
            "mov esi, {signal}",
            "syscall",
            "dec {n}",
            "jnz 2b",
            tkill = const libc::SYS_tkill,
            signal = const libc::SIGUSR2,
            thread = in(reg) thread,
            n = inout(reg) n => _,
            out("rax") _,
            out("rdi") _,
            out("rsi") _,
            out("rcx") _,
            out("r11") _,
        );
    }
    Ok(6 + 1 + 2)
}

/// A thread on the same processor, which gives it away again and again, for as long as this is there.
struct Rival(Arc<AtomicBool>);

impl Rival {
    fn begin() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let its = over.clone();
        thread::spawn(move || {
            let placed = on_first_cpu();
            while placed.is_ok() && !its.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        Self(over)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

thread_local! {
    /// Begins with the first round, which is not counted, and ends with the thread.
    static RIVAL: Rival = Rival::begin();
}

/// Give the processor away each time, to a thread that gives it back.
fn storm(n: u64) -> Result<u64> {
    RIVAL.with(|_| ());
    Ok(calls(libc::SYS_sched_yield, n))
}
