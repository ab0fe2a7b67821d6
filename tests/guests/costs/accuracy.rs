//! Counts of what is known: instructions of loops written in assembly, and of nothing at all.
//!
//! Each piece of work is done in two lengths between three readings. The readings' own instructions are in both differences, so
//! the longer less the shorter must be the known number. "Nothing" is what two readings with nothing between them count.

#![allow(unsafe_code)] // Inline assembly: the only way to know which instructions run. A signal handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use libvperfctr::{Counter, Vperfctr, a_mode};
use perf_event::Builder;
use perf_event::events::Hardware;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::mark::{Mark, say};
use tests::workload::{INSTRUCTIONS_PER_ITERATION, spin};

use crate::switch::on_first_cpu;

/// Instructions in kernel mode, and in both modes.
const IN_KERNEL: u32 = 0x0042_00C0;
const IN_BOTH: u32 = 0x0043_00C0;

/// Begins to count the calling thread.
type Begin = fn() -> Result<Read>;
/// The present count.
type Read = Box<dyn FnMut() -> Result<u64>>;
/// Does something n times; returns how many instructions each time has.
type Work = fn(u64) -> Result<u64>;

const INTERFACES: [(&str, Begin); 4] = [
    ("perfctr", || perfctr(&[INSTRUCTIONS])),
    ("perfctr-4", || perfctr(&[INSTRUCTIONS, BRANCHES, INSTRUCTIONS, BRANCHES])),
    ("perf", || perf(1, false, true)),
    ("perf-4", || perf(4, false, true)),
];

/// With the shorter length; the longer is three times that.
const WORK: [(&str, u64, Work); 6] = [
    ("loop", 1_000_000, |n| {
        spin(n);
        Ok(INSTRUCTIONS_PER_ITERATION)
    }),
    ("page-faults", 200, page_faults),
    ("system-calls", 2_000, |n| Ok(calls(libc::SYS_getppid, n))),
    ("rep-strings", 1_000, strings),
    ("signals", 300, signals),
    ("context-switches", 300, storm),
];

/// What two readings count, by interface and mode.
const NOTHING: [(&str, Begin); 6] = [
    ("perfctr", || perfctr(&[INSTRUCTIONS])),
    ("perfctr-kernel", || perfctr(&[IN_KERNEL])),
    ("perfctr-both", || perfctr(&[IN_BOTH])),
    ("perf", || perf(1, false, true)),
    ("perf-kernel", || perf(1, true, false)),
    ("perf-both", || perf(1, true, true)),
];

/// All of it, for the names that are wanted; whether there was any.
pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) -> Result<bool> {
    let mut any = false;
    for (interface, begin) in NOTHING {
        any |= one(&format!("accuracy/{interface}/nothing"), wanted, move || {
            let mut read = begin()?;
            read()?;
            let first = read()?;
            Ok((0, read()? - first))
        })?;
    }
    for (interface, begin) in INTERFACES {
        for (work, length, run) in WORK {
            any |= one(&format!("accuracy/{interface}/{work}"), wanted, move || count(begin, run, length))?;
        }
    }
    Ok(any)
}

/// In a thread of its own, as each operation.
fn one(
    name: &str,
    wanted: &dyn Fn(&str) -> bool,
    counted: impl FnOnce() -> Result<(u64, u64)> + Send + 'static,
) -> Result<bool> {
    if !wanted(name) {
        return Ok(false);
    }
    let name = name.to_owned();
    let outcome = thread::spawn(counted).join();
    say(&match outcome {
        Ok(Ok((known, counted))) => Mark::Counted { name, known, counted },
        Ok(Err(error)) => Mark::NotRun { name, reason: format!("{error:#}") },
        Err(_) => Mark::NotRun { name, reason: "it panicked".to_owned() },
    })?;
    Ok(true)
}

/// The known and the counted difference of the two lengths.
fn count(begin: Begin, work: Work, length: u64) -> Result<(u64, u64)> {
    on_first_cpu()?;
    let mut read = begin()?;
    work(length)?;
    read()?;
    let (each, short) = between(&mut read, work, length)?;
    let (_, long) = between(&mut read, work, 3 * length)?;
    Ok((2 * length * each, long.wrapping_sub(short)))
}

/// What one length counts, with the readings. One function for both lengths: inlined, the two would not be compiled alike.
#[inline(never)]
fn between(read: &mut Read, work: Work, length: u64) -> Result<(u64, u64)> {
    let start = read()?;
    let each = work(length)?;
    Ok((each, read()? - start))
}

fn perfctr(events: &[u32]) -> Result<Read> {
    let state = Vperfctr::create().context("no guest driver")?;
    let counters: Vec<Counter> =
        (0..).zip(events).map(|(pmc, &evntsel)| Counter { evntsel, escr: 0, pmc }).collect();
    state.control(&a_mode(true, &counters)?)?;
    Ok(Box::new(move || Ok(state.sums()?.pmc[0])))
}

fn perf(number: usize, kernel: bool, user: bool) -> Result<Read> {
    let mut counters = Vec::new();
    for _ in 0..number {
        let mut counter = Builder::new(Hardware::INSTRUCTIONS)
            .pinned(true)
            .exclude_kernel(!kernel)
            .exclude_user(!user)
            .build()
            .context("the guest's perf has no such event")?;
        counter.enable()?;
        counters.push(counter);
    }
    Ok(Box::new(move || Ok(counters[0].read()?)))
}

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
