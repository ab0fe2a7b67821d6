//! The few system calls `spin` makes, without a library between.
//!
//! Buffers stay uninitialised until the kernel fills them: the compiler clears arrays with the C library's memset,
//! which cannot be called here (see build.rs).

use core::arch::asm;
use core::mem::MaybeUninit;

const READ: usize = 0;
const WRITE: usize = 1;
const SCHED_SETAFFINITY: usize = 203;
const SCHED_GETAFFINITY: usize = 204;
const CLOCK_GETTIME: usize = 228;
const EXIT_GROUP: usize = 231;
const FORK: usize = 57;
const WAIT4: usize = 61;

const CLOCK_MONOTONIC: usize = 1;

/// # Safety
/// As the system call.
unsafe fn call(number: usize, a: usize, b: usize, c: usize) -> isize {
    let result;
    // SAFETY: the kernel keeps every register but RAX, RCX and R11; the rest is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") 0, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

pub(crate) fn exit(status: usize) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { call(EXIT_GROUP, status, 0, 0) };
    }
}

/// 0 in the child.
pub(crate) fn fork() -> isize {
    // SAFETY: the child has a copy of everything; there is one thread.
    unsafe { call(FORK, 0, 0, 0) }
}

pub(crate) fn wait_for(child: isize) {
    // SAFETY: the kernel writes neither status nor resource usage where 0 is given for them.
    unsafe { call(WAIT4, child.cast_unsigned(), 0, 0) };
}

pub(crate) fn write_error(text: &[u8]) {
    // SAFETY: the kernel reads `text`.
    unsafe { call(WRITE, 2, text.as_ptr() as usize, text.len()) };
}

pub(crate) fn wait_for_end_of_input() {
    let mut byte = 0u8;
    // SAFETY: the kernel writes at most one byte.
    while unsafe { call(READ, 0, &raw mut byte as usize, 1) } > 0 {}
}

pub(crate) fn monotonic_seconds() -> u64 {
    // Seconds and nanoseconds.
    let mut time = MaybeUninit::<[u64; 2]>::uninit();
    // SAFETY: the kernel writes a timespec, 16 bytes. Not by the vDSO: that would execute in user mode.
    unsafe {
        call(CLOCK_GETTIME, CLOCK_MONOTONIC, time.as_mut_ptr() as usize, 0);
        time.as_ptr().cast::<u64>().read_volatile()
    }
}

/// A set of CPUs, up to 64 of them: a guest of the tests has fewer.
pub(crate) struct Affinity(u64);

impl Affinity {
    pub(crate) fn current() -> Self {
        // The kernel wants room for all CPUs it was built for: 8192 at most.
        let mut words = MaybeUninit::<[u64; 128]>::uninit();
        let first = words.as_mut_ptr().cast::<u64>();
        // SAFETY: the kernel writes at most the size given; the first word has a value even if it refuses.
        let first = unsafe {
            first.write_volatile(0);
            call(SCHED_GETAFFINITY, 0, size_of_val(&words), first as usize);
            first.read_volatile()
        };
        Self(if first == 0 { 1 } else { first })
    }

    pub(crate) fn only(cpu: u32) -> Self {
        Self(1 << (cpu & 63))
    }

    pub(crate) fn first(&self) -> u32 {
        self.0.trailing_zeros()
    }

    /// The next member after `cpu`, round and round.
    pub(crate) fn after(&self, cpu: u32) -> u32 {
        let later = self.0 & u64::MAX.wrapping_shl(cpu).wrapping_shl(1);
        if later == 0 { self.first() } else { later.trailing_zeros() }
    }

    pub(crate) fn apply(&self) {
        // SAFETY: the kernel reads 8 bytes.
        unsafe { call(SCHED_SETAFFINITY, 0, 8, &raw const self.0 as usize) };
    }
}
