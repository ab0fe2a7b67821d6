//! Files that a kernel gets beside itself.

use super::allocator::GuestAllocator;
use super::image::Image;
use crate::machine::config::Module;
use crate::machine::error::Error;

/// Multiboot promises whole pages to those who ask; others do not mind.
const PAGE: u64 = 4096;

/// Where a module is.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) start: u32,
    pub(super) size: u32,
}

/// Put the files behind the kernel, which is where others put them too, in their order.
pub(super) fn load(allocator: &mut GuestAllocator<'_>, modules: &[Module]) -> Result<Vec<Loaded>, Error> {
    let from = allocator.end();
    modules
        .iter()
        .map(|module| {
            let bad = |reason| Error::Module { path: module.path.clone(), reason };
            let mut file = Image::open(&module.path).map_err(bad)?;
            let size = file.length();
            let start = allocator.find(size, PAGE, from).ok_or_else(|| {
                bad(format!(
                    "{} MiB do not fit beside the kernel; give the guest more memory (--memory)",
                    size.div_ceil(1 << 20)
                ))
            })?;
            file.copy(0, size, allocator.memory(), start).map_err(bad)?;
            // `find` stays below 4 GiB.
            Ok(Loaded { start: start as u32, size: size as u32 })
        })
        .collect()
}
