//! The guest's memory.

use std::io;

use vm_memory::{Address, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use super::error::Error;
use crate::address_map;

/// Reserve `size` bytes of guest memory. Pages are taken from the host when the guest touches them.
pub(super) fn create(size: u64) -> Result<GuestMemoryMmap, Error> {
    if size < address_map::MIN_MEMORY {
        return Err(Error::TooLittleMemory { asked: size });
    }
    if !size.is_multiple_of(address_map::PAGE) {
        return Err(Error::PartialPage { asked: size });
    }
    let host = host_memory().map_err(Error::HostMemory)?;
    if size > host {
        return Err(Error::TooMuchMemory { asked: size, host });
    }
    let low = size.min(address_map::HOLE);
    let mut ranges = vec![(GuestAddress(0), low as usize)];
    if size > low {
        ranges.push((GuestAddress(address_map::ABOVE_4G), (size - low) as usize));
    }
    let memory = GuestMemoryMmap::from_ranges(&ranges)
        .map_err(|e| Error::Reserve { asked: size, reason: e.to_string() })?;
    advise_huge_pages(&memory);
    Ok(memory)
}

/// Where memory below the hole ends.
pub(super) fn low_end(memory: &GuestMemoryMmap) -> u64 {
    memory.find_region(GuestAddress(0)).map_or(0, |region| region.last_addr().raw_value() + 1)
}

/// All of it, in bytes.
pub(super) fn size(memory: &GuestMemoryMmap) -> u64 {
    memory.iter().map(GuestMemoryRegion::len).sum()
}

/// Without huge pages, where the host gives them only when asked, a boot takes ten times the exits
/// (docs/kvm-behaviour.md). This is advice: a host without huge pages works too, only slower.
#[allow(unsafe_code)]
fn advise_huge_pages(memory: &GuestMemoryMmap) {
    for region in memory.iter() {
        if let Ok(start) = region.get_host_address(vm_memory::MemoryRegionAddress(0)) {
            // SAFETY: the range is exactly the mapping that `region` owns, and MADV_HUGEPAGE changes no
            // contents.
            let _ = unsafe {
                rustix::mm::madvise(start.cast(), region.len() as usize, rustix::mm::Advice::LinuxHugepage)
            };
        }
    }
}

/// Memory that the host has, in bytes.
fn host_memory() -> io::Result<u64> {
    let info = rustix::system::sysinfo();
    Ok(info.totalram as u64 * u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_host_has_is_refused() {
        assert!(matches!(create(1 << 50), Err(Error::TooMuchMemory { .. })));
        assert!(matches!(create(1 << 20), Err(Error::TooLittleMemory { .. })));
    }

    #[test]
    fn what_is_not_whole_pages_is_refused() {
        assert!(matches!(create(address_map::MIN_MEMORY + 1), Err(Error::PartialPage { .. })));
        assert!(create(address_map::MIN_MEMORY + address_map::PAGE).is_ok());
    }

    #[test]
    fn memory_beyond_the_hole_lies_above_4g() {
        let host = host_memory().unwrap();
        let size = address_map::HOLE + (64 << 20);
        if host < size {
            println!("not run: memory_beyond_the_hole_lies_above_4g: the host has too little memory");
            return;
        }
        let memory = create(size).unwrap();
        assert_eq!(low_end(&memory), address_map::HOLE);
        assert_eq!(memory.last_addr().raw_value() + 1, address_map::ABOVE_4G + (64 << 20));
    }
}
