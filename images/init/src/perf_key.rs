//! Keeps the lab's kernel from patching its scheduler again and again.
//!
//! The first perf event of a task patches a branch into the scheduler, and a second after the last one is closed a worker
//! patches it out. QEMU's multi-threaded emulation can keep a stale translation of code that is patched while another CPU
//! translates it, and the kernel then dies of "Oops: int3" in __schedule. One event that is never closed leaves the
//! branch in; it counts nothing.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

const PERF_TYPE_SOFTWARE: u64 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
/// `perf_event_attr` in 64-bit words, as long as any kernel from Linux 5.13 on knows it.
const ATTR_WORDS: usize = 16;

/// Opens the event on the calling thread, which must live as long.
pub fn hold() -> io::Result<OwnedFd> {
    let mut attr = [0u64; ATTR_WORDS];
    // type and size, 32 bits each; then config.
    attr[0] = PERF_TYPE_SOFTWARE | (size_of_val(&attr) as u64) << 32;
    attr[1] = PERF_COUNT_SW_DUMMY;
    let (this_thread, any_cpu, no_group, close_on_exec) = (0, -1, -1, 8u64);
    // SAFETY: `attr` is as long as it says; the other arguments are integers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            this_thread,
            any_cpu,
            no_group,
            close_on_exec,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
