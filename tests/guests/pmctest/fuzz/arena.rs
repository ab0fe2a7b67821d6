//! Memory to point at: all of it below 4 GiB, so that both ABIs can name it.

#![allow(unsafe_code)] // Mappings, and writes where the kernel writes too.

use std::ptr::null_mut;

use anyhow::{Result, bail, ensure};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

use crate::random::Random;

const PAGE: usize = 4096;
/// MAP_32BIT, which rustix has no name for.
const BELOW_4_GIB: MapFlags = MapFlags::from_bits_retain(0x40);
/// What surrounds the good pages, to see that nobody writes where he should not.
const CANARY: u8 = 0xC5;

/// Pages in this order: canary, good, good, read-only, nothing at all, good, nothing at all.
pub(super) struct Arena(*mut u8);

const CANARY_PAGE: usize = 0;
const GOOD: usize = PAGE;
const READ_ONLY: usize = 3 * PAGE;
const NOTHING: usize = 4 * PAGE;
const BEFORE_NOTHING: usize = 5 * PAGE;
const LENGTH: usize = 7 * PAGE;

/// The longest structure: a control, or an argument of the older interface's calls.
pub(super) const MAX_ARGUMENT: usize = 1024;

/// Addresses that nobody has, or only the kernel.
const NOBODYS: [u64; 9] = [
    0,
    1,
    0xFFF,
    0xFFFF_F000,
    0x0000_7FFF_FFFF_F000,
    0x0000_8000_0000_0000,
    0xFFFF_8880_0000_1000,
    0xFFFF_FFFF_8100_0000,
    u64::MAX - 3,
];

impl Arena {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: new memory, for good.
        unsafe {
            let flags = MapFlags::PRIVATE | BELOW_4_GIB;
            let all =
                mmap_anonymous(null_mut(), LENGTH, ProtFlags::READ | ProtFlags::WRITE, flags)?.cast::<u8>();
            ensure!((all.addr() + LENGTH) >> 32 == 0, "no memory below 4 GiB");
            all.add(CANARY_PAGE).write_bytes(CANARY, PAGE);
            all.add(READ_ONLY).write_bytes(CANARY, PAGE);
            mprotect(all.add(READ_ONLY).cast(), PAGE, MprotectFlags::READ)?;
            // Kept, so that nobody else gets these addresses.
            for nothing in [NOTHING, BEFORE_NOTHING + PAGE] {
                mprotect(all.add(nothing).cast(), PAGE, MprotectFlags::empty())?;
            }
            Ok(Self(all))
        }
    }

    /// A pointer to `content`, or to a part of it, or to somewhere else. Most are good.
    pub(super) fn pointer(&self, random: &mut Random, content: &[u8]) -> u64 {
        let good = GOOD + 8 * random.below(((2 * PAGE - MAX_ARGUMENT) / 8) as u64) as usize;
        let (offset, length) = match random.below(16) {
            0 => return random.one_of(&NOBODYS),
            // Neither half is an address of ours.
            1 => return random.next() | 0x8000_0000_C000_0000,
            2 => (READ_ONLY + random.below(64) as usize, 0),
            3 => (NOTHING + random.below(64) as usize, 0),
            // Some of it is there, and the rest is not.
            4 | 5 => {
                let there = random.below(1 + content.len() as u64) as usize;
                (BEFORE_NOTHING + PAGE - there, there)
            }
            // From the read-only page backwards.
            6 => {
                let there = random.below(1 + content.len() as u64) as usize;
                (READ_ONLY - there, there)
            }
            7 => (good + 1 + random.below(7) as usize, content.len()),
            _ => (good, content.len()),
        };
        // SAFETY: inside of pages that can be written to; nothing refers to them.
        unsafe { self.0.add(offset).copy_from_nonoverlapping(content.as_ptr(), length) };
        (self.0.addr() + offset) as u64
    }

    /// What must not change has not.
    pub(super) fn look(&self) -> Result<()> {
        for page in [CANARY_PAGE, READ_ONLY] {
            // SAFETY: pages that are readable, and written by nobody.
            let bytes = unsafe { std::slice::from_raw_parts(self.0.add(page), PAGE) };
            if let Some(at) = bytes.iter().position(|&byte| byte != CANARY) {
                bail!("byte {at} of the page at {page:#x} was written");
            }
        }
        Ok(())
    }
}
