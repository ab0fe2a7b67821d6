//! The few words that a PC's firmware leaves in the BIOS data area and that kernels look at without asking.

use vm_memory::{Bytes, GuestAddress};

use super::allocator::GuestAllocator;
use crate::address_map;
use crate::machine::error::Error;

/// Port of the first serial port.
const COM1: u64 = 0x400;
/// Segment of the extended data area, where conventional memory ends.
const EBDA: u64 = 0x40E;
/// KiB of conventional memory.
const CONVENTIONAL: u64 = 0x413;

/// The whole area.
const AREA: u64 = 0x400;
const SIZE: u64 = 0x100;

/// After the kernel is loaded: one that lies there itself does not look there. Xen, for one, puts its trampoline below
/// what these words say, and at 0 it would be lost.
pub(super) fn write_data_area(allocator: &mut GuestAllocator<'_>) -> Result<(), Error> {
    if allocator.take(AREA, SIZE).is_err() {
        return Ok(());
    }
    let words = [
        (COM1, address_map::COM1),
        (EBDA, (address_map::LOW_MEMORY_END >> 4) as u16),
        (CONVENTIONAL, (address_map::LOW_MEMORY_END >> 10) as u16),
    ];
    for (at, word) in words {
        allocator.memory().write_obj(word, GuestAddress(at)).map_err(Error::Memory)?;
    }
    Ok(())
}
