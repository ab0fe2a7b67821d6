//! The map of its memory that every boot protocol gives to the kernel, each in its own form.

use std::ops::Range;

use vm_memory::{Address, GuestMemoryBackend, GuestMemoryMmap};

use crate::address_map;
use crate::machine::memory;

/// What a part of memory is for. The numbers are those of BIOS function E820h (ACPI 6.5, table 15.4), which all
/// three protocols use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ram = 1,
    Reserved = 2,
}

/// A part of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) range: Range<u64>,
    pub(super) kind: Kind,
}

impl Part {
    pub(super) fn size(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// In ascending order.
pub(super) fn memory_map(memory: &GuestMemoryMmap) -> Vec<Part> {
    let ram = |range| Part { range, kind: Kind::Ram };
    let mut map = vec![
        ram(0..address_map::LOW_MEMORY_END),
        Part { range: address_map::ACPI..address_map::ACPI_END, kind: Kind::Reserved },
        ram(address_map::HIGH_MEMORY..memory::low_end(memory)),
    ];
    let end = memory.last_addr().raw_value() + 1;
    if end > address_map::ABOVE_4G {
        map.push(ram(address_map::ABOVE_4G..end));
    }
    map
}
