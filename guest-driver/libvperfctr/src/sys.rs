//! The calls as the kernel sees them: numbers, pointers, error numbers.
//!
//! Everything else in this crate goes through here. Programs that want to hand the kernel something wrong,
//! tests above all, use it directly.

#![allow(unsafe_code)] // libc::syscall is the only way to a system call that no library knows.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use perfctr_abi::layout::{Info, SumCtrs, VPERFCTR_READ_CHILDREN, VperfctrControl, syscall};
use rustix::io::Errno;

/// `perfctr_info`: NULL asks for nothing. The masks begin with the number of words that follow it.
///
/// # Safety
/// Whatever memory the three pointers name may be overwritten: `info` 64 bytes, each mask `4 + 4 * nrwords`.
pub unsafe fn info(info: *mut Info, cpus: *mut u32, forbidden: *mut u32) -> Result<(), Errno> {
    // SAFETY: the caller's promise covers what the kernel writes.
    done(unsafe { libc::syscall(i64::from(syscall::INFO), info, cpus, forbidden) })
}

/// `vperfctr_open`: the state of thread `tid` (0: the calling one), made if `creat`.
pub fn open(tid: i32, creat: bool) -> Result<OwnedFd, Errno> {
    // SAFETY: no pointers.
    let fd = value(unsafe { libc::syscall(i64::from(syscall::OPEN), tid, i32::from(creat)) })?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// `vperfctr_control`.
///
/// # Safety
/// The kernel only reads through `control`, so any value is sound; it is unsafe for symmetry with [`read`],
/// because a wrong pointer is never what the caller means.
pub unsafe fn control(fd: BorrowedFd<'_>, control: *const VperfctrControl) -> Result<(), Errno> {
    // SAFETY: the kernel checks the pointer and only reads through it.
    done(unsafe { libc::syscall(i64::from(syscall::CONTROL), raw(fd), control) })
}

/// `vperfctr_unlink`.
pub fn unlink(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no pointers.
    done(unsafe { libc::syscall(i64::from(syscall::UNLINK), raw(fd)) })
}

/// `vperfctr_iresume`.
pub fn iresume(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no pointers.
    done(unsafe { libc::syscall(i64::from(syscall::IRESUME), raw(fd)) })
}

/// `vperfctr_read`: NULL asks for nothing.
///
/// # Safety
/// Whatever memory the two pointers name may be overwritten: `sums` 152 bytes, `control` 348.
pub unsafe fn read(
    fd: BorrowedFd<'_>,
    sums: *mut SumCtrs,
    control: *mut VperfctrControl,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise covers what the kernel writes.
    done(unsafe { libc::syscall(i64::from(syscall::READ), raw(fd), sums, control) })
}

/// `VPERFCTR_READ_CHILDREN`.
///
/// # Safety
/// `sums` names 152 bytes that may be overwritten.
pub unsafe fn read_children(fd: BorrowedFd<'_>, sums: *mut SumCtrs) -> Result<(), Errno> {
    // SAFETY: the caller's promise covers what the kernel writes.
    let returned = unsafe { libc::ioctl(raw(fd), VPERFCTR_READ_CHILDREN.into(), sums) };
    done(returned.into())
}

fn raw(fd: BorrowedFd<'_>) -> RawFd {
    std::os::fd::AsRawFd::as_raw_fd(&fd)
}

fn value(returned: i64) -> Result<i64, Errno> {
    if returned >= 0 {
        return Ok(returned);
    }
    // SAFETY: always valid in a thread made by std or libc.
    Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
}

fn done(returned: i64) -> Result<(), Errno> {
    value(returned).map(drop)
}
