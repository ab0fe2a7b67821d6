//! Starting a kernel: what its file is, and one module for each protocol by which it is started.
//!
//! | protocol | file | entered in | boot information |
//! |---|---|---|---|
//! | `linux` | bzImage | long mode | `struct boot_params` (RSI) |
//! | `pvh` | ELF with the PVH note | 32-bit protected mode | `struct hvm_start_info` (EBX) |
//! | `multiboot` | ELF or other, with a multiboot 1 header | 32-bit protected mode | multiboot information (EBX) |

mod allocator;
mod bios;
mod elf;
pub(super) mod entry;
mod image;
mod linux;
mod memory_map;
mod modules;
mod multiboot;
mod pvh;

use std::path::Path;

use vm_memory::GuestMemoryMmap;

use super::config::Config;
use super::error::Error;
use elf::Elf;
use entry::Entry;
use image::Image;

/// The protocol by which a kernel is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A bzImage: Linux, with what its machine needs and no more.
    Linux,
    /// An ELF kernel with a PVH note.
    Pvh,
    /// A multiboot 1 image.
    Multiboot,
}

/// What a kernel's file is; an error says what else it seems to be.
pub fn recognize(kernel: &Path) -> Result<Protocol, Error> {
    let bad_kernel = |reason| Error::Kernel { path: kernel.to_owned(), reason };
    let image = Image::open(kernel).map_err(bad_kernel)?;
    protocol(&image).map_err(bad_kernel)
}

/// A file can be several of these. The order is that in which QEMU looks.
fn protocol(image: &Image) -> Result<Protocol, String> {
    let head = image.head()?;
    if linux::is_bzimage(&head) {
        return Ok(Protocol::Linux);
    }
    if multiboot::find(&head).is_some() {
        return Ok(Protocol::Multiboot);
    }
    let what = if elf::is_elf(&head) {
        if pvh::entry(image, &Elf::read(image)?)?.is_some() {
            return Ok(Protocol::Pvh);
        }
        if multiboot::is_multiboot_2(&head) {
            "an ELF file of multiboot 2, without a PVH note"
        } else {
            "an ELF file with neither a PVH note nor a multiboot header"
        }
    } else {
        match &head[..] {
            [] => "empty",
            [0x1F, 0x8B, ..] => "compressed (gzip)",
            [0x28, 0xB5, 0x2F, 0xFD, ..] => "compressed (zstd)",
            [0xFD, b'7', b'z', b'X', b'Z', ..] => "compressed (xz)",
            [b'M', b'Z', ..] => "an EFI or Windows program",
            [b'#', b'!', ..] => "a script",
            _ if multiboot::is_multiboot_2(&head) => "a multiboot 2 image",
            _ => "none of these",
        }
    };
    Err(format!(
        "not a kernel that perfvisor can start: a bzImage, an ELF file with a PVH note, or a multiboot 1 image; it is {what}"
    ))
}

/// Put the kernel, what it is given and the ACPI tables into memory. Returns how the first vCPU starts.
pub(super) fn load(memory: &GuestMemoryMmap, config: &Config, vcpus: u8) -> Result<Entry, Error> {
    match recognize(&config.kernel)? {
        Protocol::Linux => {
            linux::load(memory, &config.kernel, &config.initrd, &config.cmdline, vcpus).map(Entry::Linux)
        }
        Protocol::Pvh => pvh::load(memory, config, vcpus),
        Protocol::Multiboot => multiboot::load(memory, config, vcpus),
    }
}

#[cfg(test)]
mod tests;
