//! The instructions by which user space reads counters of the processor it runs on.
#![allow(unsafe_code, reason = "an instruction that faults where it is not allowed")]

use std::arch::asm;

/// # Safety
/// CR4.PCE must be set and the counter exist, or the process dies of SIGSEGV.
pub(crate) unsafe fn rdpmc(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: RDPMC writes EDX:EAX only. It stays between a caller's fences because asm! may read memory.
    unsafe {
        asm!("rdpmc", in("ecx") index, out("eax") low, out("edx") high, options(readonly, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// The host's time-stamp counter.
#[allow(unused_unsafe, reason = "RDTSC is an intrinsic, marked unsafe")]
pub(crate) fn rdtsc() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC, and Linux lets user space execute it.
    unsafe { std::arch::x86_64::_rdtsc() }
}
