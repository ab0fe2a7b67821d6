//! Getting a vCPU's thread out of the guest.
//!
//! A signal ends KVM_RUN only if it arrives inside it. The handler therefore also sets `immediate_exit` in the
//! thread's own kvm_run page, so that a signal that arrives just before entry ends the next KVM_RUN at once:
//! no kick is lost.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

use kvm_ioctls::VcpuFd;
use vmm_sys_util::signal::{SIGRTMIN, register_signal_handler};

use crate::say::say;

thread_local! {
    /// `immediate_exit` of the vCPU that this thread runs.
    static IMMEDIATE_EXIT: Cell<*const AtomicU8> = const { Cell::new(ptr::null()) };
}

/// Number of the signal, counted from SIGRTMIN.
const KICK: i32 = 0;

extern "C" fn on_kick(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // A const-initialised Cell of a pointer needs neither allocation nor registration of a destructor, so this
    // access is async-signal-safe.
    let flag = IMMEDIATE_EXIT.with(Cell::get);
    // SAFETY: non-null only between `enrol` and the drop of its guard, while the kvm_run page is mapped; the
    // handler runs on the very thread that set it.
    if let Some(flag) = unsafe { flag.as_ref() } {
        flag.store(1, Ordering::Relaxed);
    }
}

/// Makes this thread kickable for as long as it lives.
pub(super) struct Enrolled<'a>(&'a AtomicU8);

impl Enrolled<'_> {
    /// Forget the kicks so far. Commands must be looked at after this, not before.
    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

impl Drop for Enrolled<'_> {
    fn drop(&mut self) {
        IMMEDIATE_EXIT.with(|cell| cell.set(ptr::null()));
    }
}

/// Install the handler for this process. Before the first kick.
pub(super) fn install_handler() {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        if let Err(e) = register_signal_handler(SIGRTMIN() + KICK, on_kick) {
            // Only an invalid signal number can cause this.
            say(format_args!("cannot install the kick handler: {e}"));
        }
    });
}

/// Enrol the calling thread, which runs `fd` and keeps it alive for `'a`.
pub(super) fn enrol<'a>(fd: &mut VcpuFd) -> Enrolled<'a> {
    let flag: *mut u8 = &raw mut fd.get_kvm_run().immediate_exit;
    // SAFETY: the byte lies in the mapped kvm_run page, which lives as long as `fd`, and AtomicU8 has its layout.
    // The kernel only reads it.
    let flag: &'a AtomicU8 = unsafe { AtomicU8::from_ptr(flag) };
    IMMEDIATE_EXIT.with(|cell| cell.set(flag));
    Enrolled(flag)
}

/// Kick the thread `tid` of this process.
///
/// By thread id and not by pthread_t: after a thread has ended its id can at worst belong to another thread of this
/// process, which takes the signal as a kick without a vCPU, that is, not at all.
pub(super) fn kick(tid: libc::pid_t) {
    // SAFETY: tgkill takes three integers; every thread of this process handles the signal.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SIGRTMIN() + KICK) };
}
