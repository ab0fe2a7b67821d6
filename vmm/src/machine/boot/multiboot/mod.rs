//! Multiboot 1 images (Multiboot Specification 0.6.96): ELF files, or any whose header has addresses.

mod header;

use std::path::Path;

use vm_memory::GuestMemoryMmap;

use super::allocator::GuestAllocator;
use super::elf::Elf;
use super::entry::{Entry, ProtectedMode};
use super::image::Image;
use super::memory_map::memory_map;
use super::{bios, modules};
use crate::address_map;
use crate::machine::config::Config;
use crate::machine::error::Error;
use crate::machine::{acpi, memory};
pub(super) use header::{find, is_multiboot_2};

/// What EAX says to the kernel.
const LOADED_BY_MULTIBOOT: u32 = 0x2BAD_B002;
/// Bits of the information's `flags`: what else it has (section 3.3).
const HAS_MEMORY: u32 = 1;
const HAS_CMDLINE: u32 = 1 << 2;
const HAS_MODULES: u32 = 1 << 3;
const HAS_MEMORY_MAP: u32 = 1 << 6;
const HAS_LOADER_NAME: u32 = 1 << 9;
/// The information's length, with the fields for video that it does not have.
const INFORMATION_WORDS: usize = 29;
const LOADER_NAME: &[u8] = b"perfvisor";

pub(super) fn load(memory: &GuestMemoryMmap, config: &Config, vcpus: u8) -> Result<Entry, Error> {
    let bad_kernel = |reason| Error::Kernel { path: config.kernel.clone(), reason };
    let mut allocator = GuestAllocator::new(memory);
    let eip = load_kernel(&mut allocator, &config.kernel).map_err(bad_kernel)?;
    bios::write_data_area(&mut allocator)?;
    let loaded = modules::load(&mut allocator, &config.modules)?;
    acpi::write(memory, vcpus)?;

    let mut list = Vec::new();
    for (module, at) in config.modules.iter().zip(&loaded) {
        let words = allocator.put_text(&named(&module.path, &module.words))?;
        // Four words each, the last reserved.
        list.extend([at.start, at.start + at.size, words, 0].iter().flat_map(|word| word.to_le_bytes()));
    }
    let mut map = Vec::new();
    for part in memory_map(memory) {
        // The size does not count itself.
        map.extend(20u32.to_le_bytes());
        map.extend(part.range.start.to_le_bytes());
        map.extend(part.size().to_le_bytes());
        map.extend((part.kind as u32).to_le_bytes());
    }

    let mut information = [0u32; INFORMATION_WORDS];
    information[0] = HAS_MEMORY | HAS_CMDLINE | HAS_MODULES | HAS_MEMORY_MAP | HAS_LOADER_NAME;
    information[1] = (address_map::LOW_MEMORY_END >> 10) as u32;
    information[2] = ((memory::low_end(memory) - address_map::HIGH_MEMORY) >> 10) as u32;
    information[4] = allocator.put_text(&named(&config.kernel, &config.cmdline))?;
    information[5] = loaded.len() as u32;
    information[6] = allocator.put(&list)?;
    information[11] = map.len() as u32;
    information[12] = allocator.put(&map)?;
    information[16] = allocator.put_text(LOADER_NAME)?;
    let bytes: Vec<u8> = information.iter().flat_map(|word| word.to_le_bytes()).collect();
    let ebx = allocator.put(&bytes)?;
    Ok(Entry::Protected(ProtectedMode::new(&mut allocator, eip, LOADED_BY_MULTIBOOT, ebx)?))
}

/// Loaders put a file's name before its words, and kernels skip it. Only the last part of the path, so that a kernel
/// sees the same wherever it runs.
fn named(path: &Path, words: &str) -> Vec<u8> {
    let mut text = path.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
    if !words.is_empty() {
        text.push(b' ');
        text.extend(words.as_bytes());
    }
    text
}

/// Returns the entry point.
fn load_kernel(allocator: &mut GuestAllocator<'_>, kernel: &Path) -> Result<u32, String> {
    let mut image = Image::open(kernel)?;
    let header = find(&image.head()?).ok_or("it has no multiboot header")?;
    if let Some(plan) = header.plan(image.length())? {
        allocator.take(plan.address, plan.memory_size)?;
        image.copy(plan.offset, plan.file_size, allocator.memory(), plan.address)?;
        return Ok(plan.entry);
    }
    let elf = Elf::read(&image).map_err(|e| {
        format!("its multiboot header has no addresses, and as an ELF file it cannot be read: {e}")
    })?;
    elf.load(&mut image, allocator)?;
    elf.entry()
}
