//! Structures that are none, from anybody: refused, and everything goes on.

#![allow(unsafe_code)] // Memory that is not all there.

use std::ptr::null_mut;

use anyhow::{Result, ensure};
use libvperfctr::layout::VperfctrControl;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::check::Check;
use crate::expect::{equal, refused};
use crate::measured::{Measured, control};
use crate::older::{self, ROOM, fields, nr};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "ioctl-malformed", run: malformed },
    Check { name: "ioctl-memory-that-is-not-there", run: not_there },
    Check { name: "ioctl-garbage", run: garbage },
];

/// Bit 0 of a field's name: two words follow.
const WIDE: u32 = 1;

fn malformed() -> Result<()> {
    let state = older::open(nr::CREAT, 0)?;
    let control = |words: &[u32]| older::pass(&state, nr::CONTROL, words, words.len() as u32, 0);
    control(&[])?;
    control(&fields(&[(32, 0, 1), (32, 0, 0), (44, 0, 7), (14, 0, 7)]))?;
    let bad: [(&str, Vec<u32>); 10] = [
        ("a field without a value", vec![32 << 16]),
        ("half a field at the end", [fields(&[(32, 0, 1)]), vec![33 << 16]].concat()),
        ("two words for a field of one", vec![32 << 16 | WIDE, 1, 0]),
        ("element 1 of no array", fields(&[(32, 1, 1)])),
        ("element 18 of 18", fields(&[(36, 18, 1)])),
        ("element 0x7FFF", fields(&[(37, 0x7FFF, 1)])),
        ("a tag of INFO", fields(&[(2, 0, 1)])),
        ("a tag of sums", vec![48 << 16 | WIDE, 1, 1]),
        ("a tag of nothing", fields(&[(0xFFFF, 0, 1)])),
        ("more words than all fields have", vec![32 << 16; 256]),
    ];
    for (what, words) in &bad {
        refused(what, control(words), Errno::PROTO)?;
    }
    // Only what is announced is looked at, and an announcement is not believed.
    older::pass(&state, nr::CONTROL, &[0xFFFF_FFFF], 0, 0)?;
    for rdsize in [256, 0x4000_0000, 0x7FFF_FFFF, 0x8000_0000, u32::MAX] {
        refused("a size", older::pass(&state, nr::CONTROL, &[0; 4], rdsize, 0), Errno::PROTO)?;
    }

    older::control(&state, &crate::measured::control())?;
    let whole = older::pass(&state, nr::READ_SUM, &[], 0, ROOM)?.1.len() as u32;
    equal("words of the TSC and two counters", whole, 9)?;
    for room in 0..whole {
        refused("too little room", older::pass(&state, nr::READ_SUM, &[], 0, room), Errno::OVERFLOW)?;
    }
    older::pass(&state, nr::READ_SUM, &[], 0, whole)?;
    for (number, what) in [(nr::GLOBAL_CONTROL, "global CONTROL"), (nr::GLOBAL_READ, "global READ")] {
        let words = fields(&[(9, 0, 1)]);
        refused(what, older::pass(older::device()?, number, &words, 2, ROOM), Errno::PROTO)?;
    }
    Ok(())
}

/// Buffers that end where their memory does, and before.
fn not_there() -> Result<()> {
    const PAGE: usize = 4096;
    let state = older::open(nr::CREAT, 0)?;
    older::control(&state, &control())?;
    // SAFETY: two new pages, of which one is given back: what is done there goes to what is left, or nowhere.
    let end = unsafe {
        let memory =
            mmap_anonymous(null_mut(), 2 * PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?;
        munmap(memory.byte_add(PAGE), PAGE)?;
        memory.byte_add(PAGE).cast::<u32>()
    };
    for number in [nr::ABI, nr::INFO, nr::CPUS, nr::CONTROL, nr::READ_SUM, nr::READ_CONTROL] {
        for address in [0, 1 << 63, u64::MAX - 7, end.addr() as u64, 0xFFFF_8000_0000_0000] {
            // SAFETY: nothing is there.
            let answer = unsafe { older::ioctl(&state, number, address as usize) };
            refused(&format!("ioctl {number:#x} at {address:#x}"), answer, Errno::FAULT)?;
        }
    }
    for words in 1..12 {
        // SAFETY: before the end of the page that is left; it is announced that there is more.
        unsafe {
            let buffer = end.sub(words);
            buffer.write(if words > 2 { 10 } else { 0 });
            if words > 1 {
                buffer.add(1).write(ROOM);
            }
            let sum = older::ioctl(&state, nr::READ_SUM, buffer.expose_provenance());
            let expected = if words >= 2 + 9 { Ok(0) } else { Err(Errno::FAULT) };
            equal(&format!("READ_SUM, {words} words before the end"), sum, expected)?;
            buffer.write(if words > 2 { 12 } else { 1 });
            let control = older::ioctl(&state, nr::CONTROL, buffer.expose_provenance());
            refused(&format!("CONTROL, {words} words before the end"), control, Errno::FAULT)?;
        }
    }
    // What could not be read has changed nothing.
    Measured { state }.is_exact()
}

/// Words at random, half of them fields that there are, to all ioctls of both descriptors.
fn garbage() -> Result<()> {
    let state = older::open(nr::CREAT, 0)?;
    let device = older::device()?;
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        // Vigna's xorshift64*.
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        (seed.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    };
    let mut accepted = 0;
    for _ in 0..50_000 {
        let number = nr::ALL[random() as usize % nr::ALL.len()];
        if [nr::CREAT, nr::OPEN, nr::UNLINK].contains(&number) {
            continue;
        }
        let mut words: Vec<u32> = (0..random() % 300).map(|_| random()).collect();
        for pair in words.chunks_mut(2) {
            if random() % 8 != 0 {
                pair[0] = (9 + random() % 36) << 16 | (random() % 18) << 1;
            }
            // Not i-mode counters: whose signal might that be?
            if pair[0] >> 16 == 34 {
                pair[0] = 33 << 16;
            }
            if let [_, value] = pair {
                *value %= 1 << (random() % 32);
            }
        }
        let rdsize = if random() % 8 == 0 { random() } else { words.len() as u32 }.max(1);
        let room = random() % ROOM;
        let fd = if random() % 2 == 0 {
            std::os::fd::AsFd::as_fd(&state)
        } else {
            std::os::fd::AsFd::as_fd(&device)
        };
        accepted += u32::from(older::pass(fd, number, &words, rdsize, room).is_ok());
    }
    ensure!(accepted > 0, "nothing was accepted: that was not much of a test");
    refused("counters of CPUs beside a thread's", older::plain(&device, nr::GLOBAL_START, 0), Errno::BUSY)
        .or_else(|_| equal("CPUs set up", older::plain(&device, nr::GLOBAL_START, 0), Ok(0)))?;
    older::plain(&device, nr::GLOBAL_STOP, 0)?;
    state.control(&VperfctrControl::default())?;
    state.unlink()?;
    Measured::start()?.is_exact()
}
