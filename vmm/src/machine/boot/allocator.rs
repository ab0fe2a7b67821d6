//! Who has which part of the guest's memory while a kernel is loaded.

use std::ops::Range;

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::memory_map::{Kind, memory_map};
use crate::address_map;
use crate::machine::error::Error;

/// Memory that the kernel and what it is given have to share.
pub(super) struct GuestAllocator<'a> {
    memory: &'a GuestMemoryMmap,
    ram: Vec<Range<u64>>,
    /// Sorted; no two overlap.
    taken: Vec<Range<u64>>,
}

impl<'a> GuestAllocator<'a> {
    pub(super) fn new(memory: &'a GuestMemoryMmap) -> Self {
        let ram = memory_map(memory).into_iter().filter(|part| part.kind == Kind::Ram);
        Self { memory, ram: ram.map(|part| part.range).collect(), taken: Vec::new() }
    }

    pub(super) fn memory(&self) -> &'a GuestMemoryMmap {
        self.memory
    }

    /// Take `size` bytes at `start`, where the kernel's file wants them.
    pub(super) fn take(&mut self, start: u64, size: u64) -> Result<(), String> {
        let wanted = format!("it wants {size:#x} bytes at {start:#x}");
        let end = start.checked_add(size).ok_or_else(|| format!("{wanted}, beyond all addresses"))?;
        if !self.ram.iter().any(|ram| ram.start <= start && end <= ram.end) {
            let ram: Vec<_> = self.ram.iter().map(|ram| format!("{:#x}-{:#x}", ram.start, ram.end)).collect();
            return Err(format!(
                "{wanted}, but the guest's memory is at {}; more memory (--memory) helps if the end is too low",
                ram.join(" and ")
            ));
        }
        if self.taken.iter().any(|taken| taken.start < end && start < taken.end) {
            return Err(format!("{wanted}, where another part of it lies"));
        }
        self.insert(start..end);
        Ok(())
    }

    /// The end of what is taken below 4 GiB, and at least the first megabyte's.
    pub(super) fn end(&self) -> u64 {
        let ends = self.taken.iter().map(|taken| taken.end).filter(|end| *end <= address_map::ABOVE_4G);
        ends.max().unwrap_or(0).max(address_map::HIGH_MEMORY)
    }

    /// Take `size` bytes at the first free place from `from` on, below 4 GiB.
    pub(super) fn find(&mut self, size: u64, align: u64, from: u64) -> Option<u64> {
        let after = self.taken.iter().map(|taken| taken.end);
        let mut starts: Vec<u64> = after.chain(self.ram.iter().map(|ram| ram.start)).collect();
        starts.push(from);
        starts.sort_unstable();
        let fits = |start: &u64| {
            start.checked_add(size).is_some_and(|end| {
                end <= address_map::ABOVE_4G
                    && self.ram.iter().any(|ram| ram.start <= *start && end <= ram.end)
                    && !self.taken.iter().any(|taken| taken.start < end && *start < taken.end)
            })
        };
        let start = starts
            .into_iter()
            .filter(|start| *start >= from)
            .filter_map(|start| start.checked_next_multiple_of(align))
            .find(fits)?;
        self.insert(start..start + size);
        Some(start)
    }

    /// Put boot information somewhere, and return where: 32-bit code can reach it.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<u32, Error> {
        let size = bytes.len() as u64;
        let at = self.find(size, 8, address_map::BOOT_INFORMATION).ok_or(Error::BootInformation { size })?;
        self.memory.write_slice(bytes, GuestAddress(at)).map_err(Error::Memory)?;
        // `find` stays below 4 GiB.
        Ok(at as u32)
    }

    /// The same for text, which ends with a NUL.
    pub(super) fn put_text(&mut self, text: &[u8]) -> Result<u32, Error> {
        self.put(&[text, b"\0"].concat())
    }

    fn insert(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            let at = self.taken.partition_point(|taken| taken.start < range.start);
            self.taken.insert(at, range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 4 << 20)]).unwrap()
    }

    #[test]
    fn only_free_memory_is_given() {
        let memory = memory();
        let mut allocator = GuestAllocator::new(&memory);
        for (start, size) in [(0xE_0000, 1), (0x9_FC00, 1), (0x9_FBFF, 2), (4 << 20, 1), (u64::MAX, 2)] {
            assert!(allocator.take(start, size).is_err(), "{start:#x}");
        }
        allocator.take(0x10_0000, 0x1000).unwrap();
        assert!(allocator.take(0x10_0FFF, 1).unwrap_err().contains("another part"));
        assert_eq!(allocator.end(), 0x10_1000);
        assert_eq!(allocator.find(0x1000, 0x1000, 0x10_0000), Some(0x10_1000));
        assert_eq!(allocator.find(0x10_0000, 0x1000, 0x9000), Some(0x10_2000));
        assert_eq!(allocator.find(4 << 20, 1, 0), None);
    }

    proptest! {
        #[test]
        fn what_is_given_never_overlaps(
            wants in prop::collection::vec((0u64..5 << 20, 0u64..1 << 19, 0u32..13, any::<bool>()), 1..40),
        ) {
            let memory = memory();
            let mut allocator = GuestAllocator::new(&memory);
            for (start, size, align, anywhere) in wants {
                let got = if anywhere {
                    allocator.find(size, 1 << align, start).inspect(|at| assert_eq!(at % (1 << align), 0))
                } else {
                    allocator.take(start, size).ok().map(|()| start)
                };
                if let Some(at) = got {
                    prop_assert!(at >= start && at + size <= 4 << 20);
                    prop_assert!(size == 0 || at + size <= address_map::LOW_MEMORY_END || at >= address_map::HIGH_MEMORY);
                }
            }
            for pair in allocator.taken.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start, "{:x?}", allocator.taken);
            }
        }
    }
}
