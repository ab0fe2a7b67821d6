//! ELF kernels by the x86/HVM direct boot ABI (Xen, docs/misc/pvh.pandoc), called PVH.

use linux_loader::loader::elf::start_info::{
    XEN_HVM_START_MAGIC_VALUE, hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info,
};
use vm_memory::{ByteValued, GuestMemoryMmap};

use super::allocator::GuestAllocator;
use super::elf::Elf;
use super::entry::{Entry, ProtectedMode};
use super::image::{Image, u32_at, u64_at};
use super::memory_map::memory_map;
use super::{bios, modules};
use crate::machine::acpi;
use crate::machine::config::Config;
use crate::machine::error::Error;

/// Name and type of the note that has the 32-bit entry point (Xen, public/elfnote.h).
const NOTE_NAME: &[u8] = b"Xen\0";
const PHYS32_ENTRY: u32 = 18;

/// The entry point, if the kernel has one of this kind. Compilers write the note's address with 4 or 8 bytes.
pub(super) fn entry(image: &Image, elf: &Elf) -> Result<Option<u64>, String> {
    match elf.note(image, NOTE_NAME, PHYS32_ENTRY)? {
        None => Ok(None),
        Some(address) if address.len() == 4 => Ok(Some(u32_at(&address, 0).into())),
        Some(address) if address.len() == 8 => Ok(Some(u64_at(&address, 0))),
        Some(other) => Err(format!("its PVH note has an entry point of {} bytes", other.len())),
    }
}

pub(super) fn load(memory: &GuestMemoryMmap, config: &Config, vcpus: u8) -> Result<Entry, Error> {
    let bad_kernel = |reason| Error::Kernel { path: config.kernel.clone(), reason };
    let mut allocator = GuestAllocator::new(memory);
    let eip = load_kernel(&mut allocator, config).map_err(bad_kernel)?;
    bios::write_data_area(&mut allocator)?;
    let loaded = modules::load(&mut allocator, &config.modules)?;

    let mut list = Vec::new();
    for (module, at) in config.modules.iter().zip(&loaded) {
        // No address means no words.
        let words = if module.words.is_empty() { 0 } else { allocator.put_text(module.words.as_bytes())? };
        let entry = hvm_modlist_entry {
            paddr: at.start.into(),
            size: at.size.into(),
            cmdline_paddr: words.into(),
            ..Default::default()
        };
        list.extend(entry.as_slice());
    }
    let mut map = Vec::new();
    let parts = memory_map(memory);
    for part in &parts {
        let entry = hvm_memmap_table_entry {
            addr: part.range.start,
            size: part.size(),
            type_: part.kind as u32,
            ..Default::default()
        };
        map.extend(entry.as_slice());
    }
    let start_info = hvm_start_info {
        magic: XEN_HVM_START_MAGIC_VALUE,
        version: 1,
        nr_modules: loaded.len() as u32,
        modlist_paddr: if list.is_empty() { 0 } else { allocator.put(&list)?.into() },
        cmdline_paddr: allocator.put_text(config.cmdline.as_bytes())?.into(),
        rsdp_paddr: acpi::write(memory, vcpus)?,
        memmap_paddr: allocator.put(&map)?.into(),
        memmap_entries: parts.len() as u32,
        ..Default::default()
    };
    let ebx = allocator.put(start_info.as_slice())?;
    Ok(Entry::Protected(ProtectedMode::new(&mut allocator, eip, 0, ebx)?))
}

fn load_kernel(allocator: &mut GuestAllocator<'_>, config: &Config) -> Result<u32, String> {
    let mut image = Image::open(&config.kernel)?;
    let elf = Elf::read(&image)?;
    let entry = entry(&image, &elf)?.ok_or("it has no PVH note")?;
    elf.load(&mut image, allocator)?;
    elf.check_entry(entry)
}
