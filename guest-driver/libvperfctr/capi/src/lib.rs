//! libvperfctr for C: the functions that `include/vperfctr.h` declares and describes.
//!
//! Programs of this repository are linked statically; the libraries for C programs are not:
//!
//! ```text
//! export RUSTFLAGS=-Ctarget-feature=-crt-static
//! cargo rustc --release --package libvperfctr-c --target-dir target/c --crate-type cdylib,staticlib -- \
//!     -Clink-arg=-Wl,-soname,libvperfctr.so.0
//! # target/c/x86_64-unknown-linux-gnu/release/: libvperfctr.a, and libvperfctr.so, to be installed as libvperfctr.so.0
//! ```
//!
//! The number in the shared library's name changes when the header changes incompatibly.
//!
//! Nothing here panics, and an error is -1 or NULL with `errno` set. Each function is a thin cover of one in the crate
//! `libvperfctr`.

#![allow(unsafe_code)] // Pointers that C programs give, and functions under names of C.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libvperfctr::layout::{ABI_MAJOR_MASK, ABI_VERSION, Info, SampleRecord, SumCtrs, VperfctrControl};
use libvperfctr::{Error, OwnCounters, SampleBuffer, Vperfctr, cpu_counters, cpu_name_c, sys};
use rustix::io::Errno;

/// `struct vperfctr`
pub struct Handle {
    counters: Counters,
    samples: Option<SampleBuffer>,
}

enum Counters {
    Own(OwnCounters),
    Other(Vperfctr),
}

impl Handle {
    fn boxed(counters: Counters) -> *mut Self {
        Box::into_raw(Box::new(Self { counters, samples: None }))
    }

    fn state(&self) -> &Vperfctr {
        match &self.counters {
            Counters::Own(own) => own.state(),
            Counters::Other(state) => state,
        }
    }

    fn sums(&self) -> Result<SumCtrs, Error> {
        match &self.counters {
            Counters::Own(own) => own.sums(),
            Counters::Other(state) => state.sums(),
        }
    }
}

fn set_errno(errno: Errno) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
}

/// 0, or -1 and errno.
fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// What an operation on a handle comes to.
fn on(handle: Option<&Handle>, operation: impl FnOnce(&Handle) -> Result<(), Error>) -> c_int {
    let Some(handle) = handle else { return status(Err(Errno::INVAL)) };
    status(operation(handle).map_err(|error| error.errno()))
}

/// A value that goes to where `place` points; EFAULT for NULL.
///
/// # Safety
/// `place` is NULL or may be written.
unsafe fn put<T>(place: *mut T, value: T) -> Result<(), Errno> {
    if place.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise. Unaligned, for 32-bit programs align 64-bit numbers to 4 bytes.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// An operation whose value goes to where `place` points.
///
/// # Safety
/// See [`put`].
unsafe fn get<T>(
    handle: Option<&Handle>,
    place: *mut T,
    operation: impl FnOnce(&Handle) -> Result<T, Error>,
) -> c_int {
    let Some(handle) = handle else { return status(Err(Errno::INVAL)) };
    // SAFETY: the caller's promise.
    status(operation(handle).map_err(|error| error.errno()).and_then(|value| unsafe { put(place, value) }))
}

/// See the header.
///
/// # Safety
/// What the pointers name may be written, as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perfctr_info(info: *mut Info, cpus: *mut u32, forbidden: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { sys::info(info, cpus, forbidden) };
    if result.is_ok() && !info.is_null() {
        // SAFETY: the kernel has just written it.
        let kernel = unsafe { (*info).abi_version };
        if (kernel ^ ABI_VERSION) & ABI_MAJOR_MASK != 0 {
            return status(Err(Errno::PROTO));
        }
    }
    status(result)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn perfctr_cpu_name(info: Option<&Info>) -> *const c_char {
    let name: &'static CStr = info.map_or(c"?", |info| cpu_name_c(info.cpu_type));
    name.as_ptr()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn perfctr_cpu_nrctrs(info: Option<&Info>) -> c_uint {
    info.map_or(0, |info| match info.counters {
        0 => cpu_counters(info.cpu_type),
        said => (said & 0xFF) + (said >> 8 & 0xFF),
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vperfctr_open(tid: c_int, creat: c_int) -> *mut Handle {
    let opened = match (tid, creat != 0) {
        (0, true) => OwnCounters::create().map(Counters::Own),
        (0, false) => OwnCounters::existing().map(Counters::Own),
        (tid, creat) => Vperfctr::open(tid, creat).and_then(|state| {
            // Opening what is not there succeeds; reading it does not.
            if !creat {
                state.sums()?;
            }
            Ok(Counters::Other(state))
        }),
    };
    match opened {
        Ok(counters) => Handle::boxed(counters),
        Err(error) => {
            set_errno(error.errno());
            std::ptr::null_mut()
        }
    }
}

/// See the header.
///
/// # Safety
/// `fd` is open and nobody else's any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_from_fd(fd: c_int) -> *mut Handle {
    if fd < 0 {
        set_errno(Errno::BADF);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    Handle::boxed(Counters::Other(Vperfctr::from(unsafe { OwnedFd::from_raw_fd(fd) })))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vperfctr_fd(handle: Option<&Handle>) -> c_int {
    match handle {
        Some(handle) => handle.state().as_fd().as_raw_fd(),
        None => status(Err(Errno::INVAL)),
    }
}

/// See the header.
///
/// # Safety
/// `handle` is NULL or came from a function here, and is not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_close(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: the caller's promise; it was made by `Handle::boxed`.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vperfctr_control(handle: Option<&Handle>, control: Option<&VperfctrControl>) -> c_int {
    let Some(control) = control else { return status(Err(Errno::FAULT)) };
    on(handle, |handle| handle.state().control(control))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vperfctr_stop(handle: Option<&Handle>) -> c_int {
    on(handle, |handle| handle.state().stop())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vperfctr_iresume(handle: Option<&Handle>) -> c_int {
    on(handle, |handle| handle.state().iresume())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vperfctr_unlink(handle: Option<&Handle>) -> c_int {
    on(handle, |handle| handle.state().unlink())
}

/// See the header.
///
/// # Safety
/// `sum` and `control` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_read(
    handle: Option<&Handle>,
    sum: *mut SumCtrs,
    control: *mut VperfctrControl,
) -> c_int {
    let Some(handle) = handle else { return status(Err(Errno::INVAL)) };
    // SAFETY: the caller's promise.
    status(unsafe { sys::read(handle.state().as_fd(), sum, control) })
}

/// See the header.
///
/// # Safety
/// `sum` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_read_ctrs(handle: Option<&Handle>, sum: *mut SumCtrs) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { get(handle, sum, Handle::sums) }
}

/// See the header.
///
/// # Safety
/// `count` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_read_pmc(handle: Option<&Handle>, index: c_uint, count: *mut u64) -> c_int {
    let index = index as usize;
    if index >= libvperfctr::layout::MAX_COUNTERS {
        return status(Err(Errno::INVAL));
    }
    // SAFETY: the caller's promise.
    unsafe {
        get(handle, count, |handle| match &handle.counters {
            Counters::Own(own) => own.counter(index),
            Counters::Other(state) => Ok(state.sums()?.pmc[index]),
        })
    }
}

/// See the header.
///
/// # Safety
/// `tsc` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_read_tsc(handle: Option<&Handle>, tsc: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        get(handle, tsc, |handle| match &handle.counters {
            Counters::Own(own) => own.tsc(),
            Counters::Other(state) => Ok(state.sums()?.tsc),
        })
    }
}

/// See the header.
///
/// # Safety
/// `sum` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_read_children(handle: Option<&Handle>, sum: *mut SumCtrs) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { get(handle, sum, |handle| handle.state().children_sums()) }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn vperfctr_map_samples(handle: Option<&mut Handle>, order: c_uint) -> c_int {
    let Some(handle) = handle else { return status(Err(Errno::INVAL)) };
    if handle.samples.is_some() {
        return status(Err(Errno::BUSY));
    }
    let mapped = handle.state().map_samples(order).map_err(|error| error.errno());
    status(mapped.map(|samples| handle.samples = Some(samples)))
}

/// See the header.
///
/// # Safety
/// `sample` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_take_sample(
    handle: Option<&mut Handle>,
    sample: *mut SampleRecord,
) -> c_int {
    let Some(samples) = handle.and_then(|handle| handle.samples.as_mut()) else {
        return status(Err(Errno::INVAL));
    };
    if sample.is_null() {
        return status(Err(Errno::FAULT));
    }
    match samples.take() {
        // SAFETY: the caller's promise.
        Some(record) => match status(unsafe { put(sample, record) }) {
            0 => 1,
            failed => failed,
        },
        None => 0,
    }
}

/// See the header.
///
/// # Safety
/// `lost` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vperfctr_samples_lost(handle: Option<&Handle>, lost: *mut u64) -> c_int {
    let Some(samples) = handle.and_then(|handle| handle.samples.as_ref()) else {
        return status(Err(Errno::INVAL));
    };
    // SAFETY: the caller's promise.
    status(unsafe { put(lost, samples.lost()) })
}
