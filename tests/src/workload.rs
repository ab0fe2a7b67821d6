//! A loop of known length.

#![allow(unsafe_code)] // Inline assembly: the only way to know which instructions run.

/// Instructions in one iteration of [`spin`].
pub const INSTRUCTIONS_PER_ITERATION: u64 = 4;
/// Branches in one iteration of [`spin`].
pub const BRANCHES_PER_ITERATION: u64 = 1;

/// Instructions in one round of [`emulated`]; all but one of them are retired by the processor.
pub const INSTRUCTIONS_PER_EMULATED_ROUND: u64 = 4;

/// Run `rounds` times over [`INSTRUCTIONS_PER_EMULATED_ROUND`] instructions, one of which is CPUID: every hypervisor executes
/// that in the guest's place. One in each round is a branch.
#[inline(never)]
pub fn emulated(rounds: u64) {
    if rounds == 0 {
        return;
    }
    // SAFETY: changes the registers that it names, and rbx, which it keeps in another one: the compiler has a use for it.
    unsafe {
        core::arch::asm!(
            "mov rdi, rbx",
            "2:",
            "xor eax, eax",
            "cpuid",
            "dec rsi",
            "jnz 2b",
            "mov rbx, rdi",
            inout("rsi") rounds => _,
            out("rdi") _,
            out("rax") _,
            out("rcx") _,
            out("rdx") _,
            options(nomem, nostack),
        );
    }
}

/// Run `iterations` times over [`INSTRUCTIONS_PER_ITERATION`] instructions; 0 is none.
///
/// Beside the iterations it costs a few instructions, the same for every number but 0. So two calls differ by
/// exactly the difference of their iterations.
#[inline(never)]
pub fn spin(iterations: u64) {
    if iterations == 0 {
        return;
    }
    // SAFETY: changes three registers, which it names, and the flags.
    unsafe {
        core::arch::asm!(
            "2:",
            "add {a}, 1",
            "xor {b}, {a}",
            "dec {n}",
            "jnz 2b",
            a = inout(reg) 0u64 => _,
            b = inout(reg) 0u64 => _,
            n = inout(reg) iterations => _,
            options(nomem, nostack),
        );
    }
}
