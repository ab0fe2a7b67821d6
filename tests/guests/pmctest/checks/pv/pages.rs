//! Three pages of this process with their guest-physical addresses.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};

use anyhow::{Context, Result, ensure};
use perfctr_abi::pv::Page;
use rustix::mm::{MapFlags, ProtFlags, mlock, mmap_anonymous, munmap};
use zerocopy::{FromBytes, IntoBytes};

const SIZE: usize = 4096;
const COUNT: usize = 3;

/// The page shared with the VMM, and two state pages. Locked, so that they stay where they are.
pub(super) struct Pages {
    memory: NonNull<u8>,
    addresses: [u64; COUNT],
}

impl Pages {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice, written to once so that it has pages.
        let memory = unsafe {
            let memory = mmap_anonymous(
                null_mut(),
                COUNT * SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?;
            mlock(memory, COUNT * SIZE)?;
            memory.cast::<u8>().write_bytes(0, COUNT * SIZE);
            NonNull::new(memory.cast()).context("mapped at 0")?
        };
        let mut pages = Self { memory, addresses: [0; COUNT] };
        for (i, address) in pages.addresses.iter_mut().enumerate() {
            *address = physical_address(memory.as_ptr() as usize + i * SIZE)?;
        }
        Ok(pages)
    }

    pub(super) fn shared_address(&self) -> u64 {
        self.addresses[0]
    }

    pub(super) fn state_addresses(&self) -> [u64; 2] {
        [self.addresses[1], self.addresses[2]]
    }

    pub(super) fn fill(&self, page: &Page) {
        // SAFETY: inside the mapping; volatile because the VMM looks at it.
        unsafe { self.memory.cast::<Page>().as_ptr().write_volatile(*page) };
    }

    pub(super) fn seen(&self) -> Page {
        // SAFETY: as above.
        unsafe { self.memory.cast::<Page>().as_ptr().read_volatile() }
    }

    /// Random bytes over the state pages.
    pub(super) fn scribble(&self, random: &mut impl FnMut() -> u64) {
        for i in SIZE / 8..COUNT * SIZE / 8 {
            // SAFETY: inside the mapping.
            unsafe { self.memory.cast::<u64>().as_ptr().add(i).write_volatile(random()) };
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nothing refers to it.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), COUNT * SIZE) };
    }
}

/// The structure as words, to be filled with anything.
pub(super) fn words_of(page: &mut Page) -> &mut [u32] {
    <[u32]>::mut_from_bytes(page.as_mut_bytes()).unwrap_or(&mut [])
}

/// From /proc/self/pagemap: bits 0 to 54 are the page frame number, bit 63 says that there is one.
fn physical_address(address: usize) -> Result<u64> {
    let map = File::open("/proc/self/pagemap")?;
    let mut entry = [0; 8];
    map.read_exact_at(&mut entry, (address / SIZE * 8) as u64)?;
    let entry = u64::from_le_bytes(entry);
    let frame = entry & ((1 << 55) - 1);
    ensure!(entry >> 63 == 1 && frame != 0, "the kernel does not show physical addresses: run this as root");
    Ok(frame * SIZE as u64)
}
