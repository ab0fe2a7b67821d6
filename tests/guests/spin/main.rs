//! `spin`: executes a known number of instructions.
//!
//! ```text
//! spin N                     N iterations of tests::workload::spin
//! spin N --migrate ROUNDS    the same in ROUNDS equal parts; before each part it moves to the next CPU
//! spin N --wait              before them waits until standard input ends
//! spin N --pause             afterwards waits until standard input ends
//! spin N --cpuid M           before it, M rounds of tests::workload::emulated
//! spin N --child M           before it, a child does M iterations and ends; may be given again
//! spin --seconds S           whole batches of iterations until S seconds have passed: not a known number
//! ```
//!
//! Whatever surrounds the iterations executes the same instructions at every run with the same *form* of arguments:
//! the same options and the same number of digits. So for two values of N, padded with zeros to one length,
//! the counts differ by exactly `(N2 - N1) * INSTRUCTIONS_PER_ITERATION`. There is no C library: its start-up
//! would depend on where the kernel placed the stack.
//!
//! Exit status 2, with a message, for arguments it cannot use.

#![no_main]
#![allow(unsafe_code)] // The process's first instructions, raw system calls, and argument strings as the kernel left them.

mod kernel;

use tests::workload::{emulated, spin};

/// Iterations between two looks at the clock: about a millisecond.
const BATCH: u64 = 1 << 20;

const USAGE: &[u8] =
    b"usage: spin N [--migrate ROUNDS] [--cpuid M] [--child M]... [--wait] [--pause] | spin --seconds S\n\
    ROUNDS must divide N; numbers are decimal\n";

core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {start}",
    "ud2",
    start = sym start,
);

/// `stack` is where the kernel left argc, followed by the argument pointers and NULL.
extern "C" fn start(stack: *const usize) -> ! {
    // SAFETY: the layout of a new process's stack in the System V ABI for x86-64.
    let arguments = unsafe { Arguments::new(stack) };
    match run(arguments) {
        Some(()) => kernel::exit(0),
        None => {
            kernel::write_error(USAGE);
            kernel::exit(2)
        }
    }
}

fn run(mut arguments: Arguments) -> Option<()> {
    let first = arguments.next()?;
    if first.is(b"--seconds") {
        let seconds = arguments.next()?.number()?;
        if arguments.next().is_some() {
            return None;
        }
        spin_for(seconds);
        return Some(());
    }
    let iterations = first.number()?;
    let (mut each_round, mut pause) = (None, false);
    while let Some(option) = arguments.next() {
        if option.is(b"--pause") {
            pause = true;
        } else if option.is(b"--wait") {
            kernel::wait_for_end_of_input();
        } else if option.is(b"--migrate") {
            let rounds = arguments.next()?.number()?;
            if rounds == 0 || !iterations.is_multiple_of(rounds) {
                return None;
            }
            each_round = Some((iterations / rounds, rounds));
        } else if option.is(b"--cpuid") {
            emulated(arguments.next()?.number()?);
        } else if option.is(b"--child") {
            family(arguments.next()?.number()?);
        } else {
            return None;
        }
    }
    match each_round {
        None => spin(iterations),
        Some((iterations, rounds)) => migrate(iterations, rounds),
    }
    if pause {
        kernel::wait_for_end_of_input();
    }
    Some(())
}

/// The parent executes the same instructions whenever the child ends, which no shell does.
fn family(iterations: u64) {
    match kernel::fork() {
        0 => {
            spin(iterations);
            kernel::exit(0)
        }
        child => kernel::wait_for(child),
    }
}

fn spin_for(seconds: u64) {
    let end = kernel::monotonic_seconds().wrapping_add(seconds);
    // Whole seconds have passed when the clock's seconds exceed the end: up to one more than asked for.
    while kernel::monotonic_seconds() <= end {
        spin(BATCH);
    }
}

fn migrate(iterations: u64, rounds: u64) {
    let allowed = kernel::Affinity::current();
    let mut cpu = allowed.first();
    let mut round = 0;
    while round < rounds {
        kernel::Affinity::only(cpu).apply();
        spin(iterations);
        cpu = allowed.after(cpu);
        round = round.wrapping_add(1);
    }
}

/// The program's arguments, without its name.
struct Arguments {
    next: *const *const u8,
}

impl Arguments {
    /// # Safety
    /// `stack` must be the stack pointer at the process's start.
    unsafe fn new(stack: *const usize) -> Self {
        // SAFETY: argc is there, then at least the program's name and NULL. A program started without a name
        // has NULL in its place, where `next` would run into the environment: then there are no arguments.
        unsafe {
            let skip = if *stack == 0 { 1 } else { 2 };
            Self { next: stack.add(skip).cast() }
        }
    }

    fn next(&mut self) -> Option<Argument> {
        // SAFETY: `next` stops at the NULL that ends the arguments.
        unsafe {
            let argument = *self.next;
            if argument.is_null() {
                return None;
            }
            self.next = self.next.add(1);
            Some(Argument(argument))
        }
    }
}

/// A string that ends in NUL, read one volatile byte at a time: the compiler would make a call of the C library's
/// bcmp out of a plain loop, and that works in blocks whose number depends on the address.
struct Argument(*const u8);

impl Argument {
    fn byte(&self, i: usize) -> u8 {
        // SAFETY: the callers stop at the NUL.
        unsafe { self.0.add(i).read_volatile() }
    }

    fn is(&self, text: &[u8]) -> bool {
        let mut i = 0;
        while i < text.len() {
            if self.byte(i) != text[i] {
                return false;
            }
            i = i.wrapping_add(1);
        }
        self.byte(i) == 0
    }

    /// Its cost depends on the number of digits, not on their values.
    fn number(&self) -> Option<u64> {
        let (mut value, mut i) = (0u64, 0);
        while self.byte(i) != 0 {
            let digit = u64::from(self.byte(i).wrapping_sub(b'0'));
            if digit > 9 || i == 20 {
                return None;
            }
            value = value.wrapping_mul(10).wrapping_add(digit);
            i = i.wrapping_add(1);
        }
        if i == 0 { None } else { Some(value) }
    }
}
