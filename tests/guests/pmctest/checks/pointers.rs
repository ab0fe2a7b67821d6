//! Bad pointers and bad descriptors: an error number, and everything goes on.

#![allow(unsafe_code)] // Handing the kernel pointers that are wrong is the point; it must not follow them.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{null_mut, without_provenance_mut};

use anyhow::Result;
use libvperfctr::sys;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::check::Check;
use crate::expect::{refused, refused_with};
use crate::measured::{Measured, control};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "pointers-bad", run: bad_pointers },
    Check { name: "pointers-straddling", run: straddling },
    Check { name: "pointers-wrong-descriptors", run: wrong_descriptors },
];

const PAGE: usize = 4096;

/// Addresses no program can use.
const BAD: [(&str, usize); 6] = [
    ("the first page of the address space", 4),
    ("a non-canonical address", 0x8000_0000_0000_0000),
    ("the first byte after user space", 0x0000_7FFF_FFFF_F000),
    ("the kernel's direct map", 0xFFFF_8880_0000_0000),
    ("the kernel's code", 0xFFFF_FFFF_8100_0000),
    ("the last bytes of the address space", usize::MAX - 7),
];

fn bad_pointers() -> Result<()> {
    let measured = Measured::start()?;
    for (what, address) in BAD {
        every_call(&measured, what, address)?;
    }
    // SAFETY: a new mapping at an address of the kernel's choice, gone before its address is used.
    let unmapped = unsafe {
        let page = mmap_anonymous(null_mut(), PAGE, ProtFlags::READ, MapFlags::PRIVATE)?;
        munmap(page, PAGE)?;
        page.addr()
    };
    every_call(&measured, "an unmapped page", unmapped)?;
    // SAFETY: the kernel is to refuse NULL, and reads nothing.
    refused("control from NULL", unsafe { sys::control(measured.state.as_fd(), null_mut()) }, Errno::FAULT)?;
    measured.state.control(&control())?;
    measured.is_exact()
}

/// All pointers of all calls, one after the other.
fn every_call(measured: &Measured, what: &str, address: usize) -> Result<()> {
    let fd = measured.state.as_fd();
    let bad = |call: &str| format!("{call} at {what}");
    // SAFETY: nothing of ours is at this address, so there is nothing the kernel could overwrite.
    unsafe {
        let words = without_provenance_mut::<u32>(address & !3);
        refused(
            &bad("info"),
            sys::info(without_provenance_mut(address), null_mut(), null_mut()),
            Errno::FAULT,
        )?;
        refused(&bad("cpus"), sys::info(null_mut(), words, null_mut()), Errno::FAULT)?;
        refused(&bad("forbidden"), sys::info(null_mut(), null_mut(), words), Errno::FAULT)?;
        refused(&bad("control"), sys::control(fd, without_provenance_mut(address)), Errno::FAULT)?;
        refused(&bad("read sums"), sys::read(fd, without_provenance_mut(address), null_mut()), Errno::FAULT)?;
        refused(
            &bad("read control"),
            sys::read(fd, null_mut(), without_provenance_mut(address)),
            Errno::FAULT,
        )
    }
}

/// Structures that begin in a good page and end in none, and pages that can only be read.
fn straddling() -> Result<()> {
    let measured = Measured::start()?;
    let fd = measured.state.as_fd();
    // SAFETY: two new pages, the second unmapped again; the kernel may write to the end of the first.
    unsafe {
        let first =
            mmap_anonymous(null_mut(), 2 * PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?;
        munmap(first.byte_add(PAGE), PAGE)?;
        let edge = first.byte_add(PAGE - 8);
        refused("info over the edge", sys::info(edge.cast(), null_mut(), null_mut()), Errno::FAULT)?;
        refused("control over the edge", sys::control(fd, edge.cast()), Errno::FAULT)?;
        refused("sums over the edge", sys::read(fd, edge.cast(), null_mut()), Errno::FAULT)?;
        let length_only = edge.byte_add(4).cast::<u32>();
        length_only.write(64);
        refused(
            "a mask whose words are over the edge",
            sys::info(null_mut(), length_only, null_mut()),
            Errno::FAULT,
        )?;
        munmap(first, PAGE)?;

        let read_only = mmap_anonymous(null_mut(), PAGE, ProtFlags::READ, MapFlags::PRIVATE)?;
        refused("info, read-only", sys::info(read_only.cast(), null_mut(), null_mut()), Errno::FAULT)?;
        refused("sums, read-only", sys::read(fd, read_only.cast(), null_mut()), Errno::FAULT)?;
        munmap(read_only, PAGE)?;
    }
    measured.state.control(&control())?;
    measured.is_exact()
}

fn wrong_descriptors() -> Result<()> {
    let measured = Measured::start()?;
    let null = std::fs::File::open("/dev/null")?;
    let (pipe, _other) = rustix::pipe::pipe()?;
    // SAFETY: the number is of no open descriptor, and the calls only say so.
    let closed = unsafe { BorrowedFd::borrow_raw(1_000_000) };
    // Original perfctr: EBADF for no file, EINVAL for a file of another kind.
    for (what, fd, expected) in [
        ("a number without a file", closed, &[Errno::BADF][..]),
        ("/dev/null", null.as_fd(), &[Errno::INVAL, Errno::BADF]),
        ("a pipe", pipe.as_fd(), &[Errno::INVAL, Errno::BADF]),
    ] {
        let (control, mut sums) = (control(), Default::default());
        // SAFETY: good pointers.
        refused_with(&format!("control of {what}"), unsafe { sys::control(fd, &control) }, expected)?;
        refused_with(&format!("unlink of {what}"), sys::unlink(fd), expected)?;
        refused_with(&format!("iresume of {what}"), sys::iresume(fd), expected)?;
        // SAFETY: a good pointer; the control is not asked for.
        refused_with(&format!("read of {what}"), unsafe { sys::read(fd, &mut sums, null_mut()) }, expected)?;
    }
    measured.is_exact()
}
