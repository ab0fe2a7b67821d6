//! Mappings of states: made, scribbled at, moved and given up.

#![allow(unsafe_code)] // That is the point.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mprotect, mremap, munmap,
};

use crate::random::Random;

const PAGE: usize = 4096;

#[derive(Clone, Copy)]
struct Mapping {
    at: *mut c_void,
    length: usize,
    /// Of a state, which is there to its end. Files of other kinds may be shorter.
    whole: bool,
    writable: bool,
}

/// A few at a time.
#[derive(Default)]
pub(super) struct Mappings(Vec<Mapping>);

impl Mappings {
    /// One operation; whether it was accepted. `fd` is perhaps that of a state.
    pub(super) fn call(&mut self, random: &mut Random, fd: BorrowedFd<'_>, of_state: bool) -> bool {
        if self.0.len() > 3 || (!self.0.is_empty() && random.below(2) == 0) {
            let index = random.below(self.0.len() as u64) as usize;
            return self.change(random, index);
        }
        let length = PAGE * random.one_of(&[1, 1, 1, 2, 3, 5, 9, 33]);
        let writable = random.below(3) == 0;
        let mut protection = ProtFlags::READ;
        if writable {
            protection |= ProtFlags::WRITE;
        }
        if random.below(16) == 0 {
            protection |= ProtFlags::EXEC;
        }
        let flags = random.one_of(&[MapFlags::SHARED, MapFlags::SHARED, MapFlags::PRIVATE]);
        let offset = random.one_of(&[0, 0, 0, 1, 2, 1 << 40]) * PAGE as u64;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let made = unsafe { mmap(null_mut(), length, protection, flags, fd, offset) };
        if let Ok(at) = made {
            self.0.push(Mapping { at, length, whole: of_state, writable });
        }
        made.is_ok()
    }

    fn change(&mut self, random: &mut Random, index: usize) -> bool {
        let Mapping { at, length, whole, writable } = self.0[index];
        // SAFETY: the mapping is ours, nothing refers to it, and it is forgotten where it is gone.
        unsafe {
            match random.below(6) {
                0 => mprotect(at, length, MprotectFlags::READ | MprotectFlags::WRITE).is_ok(),
                1 => madvise(at, length, random.one_of(&[Advice::LinuxDontNeed, Advice::WillNeed])).is_ok(),
                2 => match mremap(at, length, length + PAGE, MremapFlags::MAYMOVE) {
                    Ok(at) => {
                        self.0[index].at = at;
                        // More than the file has: giving back what is beyond.
                        munmap(at.byte_add(length), PAGE).is_ok()
                    }
                    Err(_) => false,
                },
                3 if whole && writable => {
                    // The first page of a sample buffer is the program's to spoil; so are the records.
                    let word = random.below((length / 8) as u64) as usize;
                    at.cast::<u64>().add(word).write_volatile(random.one_of(&[0, 1, 1 << 31, 1 << 63, !0]));
                    true
                }
                4 if whole => {
                    at.cast::<u64>().read_volatile();
                    true
                }
                _ => {
                    self.0.swap_remove(index);
                    munmap(at, length).is_ok()
                }
            }
        }
    }
}
