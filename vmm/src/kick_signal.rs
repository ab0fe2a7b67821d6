//! The signal that takes a vCPU's thread out of the guest.

use vmm_sys_util::signal::SIGRTMIN;

/// Number of the signal, counted from SIGRTMIN.
const KICK: i32 = 0;

/// The signal's number, for who has the kernel send it (perf's overflow notification (F_SETSIG) to a vCPU's thread), and for
/// who lets it through.
pub fn number() -> libc::c_int {
    SIGRTMIN() + KICK
}
