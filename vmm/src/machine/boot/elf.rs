//! ELF kernels: segments and notes, of 32-bit and 64-bit files alike.
//!
//! linux-loader reads 64-bit files only, takes the last note segment for the only one, and puts segments wherever
//! they want; test kernels are often 32-bit files, and where theirs go must be known before anything is put beside.
//! Sources: System V ABI, chapters 4 and 5; ELF-64 Object File Format 1.5.

use super::allocator::GuestAllocator;
use super::image::{Image, u16_at, u32_at, u64_at};

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_32: u8 = 1;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const MACHINE_386: u16 = 3;
const MACHINE_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
/// More program headers, or longer notes, than any kernel has.
const MAX_HEADERS: u16 = 1024;
const MAX_NOTES: u64 = 1 << 20;

/// What a kernel's ELF headers say.
#[derive(Debug)]
pub(super) struct Elf {
    entry: u64,
    headers: Vec<ProgramHeader>,
}

#[derive(Clone, Copy, Debug)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    virtual_address: u64,
    physical_address: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

/// Whether a file that begins with `head` claims to be an ELF file.
pub(super) fn is_elf(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

impl Elf {
    pub(super) fn read(image: &Image) -> Result<Self, String> {
        let ident = image.bytes(0, 16)?;
        if !is_elf(&ident) {
            return Err("not an ELF file".to_owned());
        }
        let wide = match ident[4] {
            CLASS_32 => false,
            CLASS_64 => true,
            other => return Err(format!("an ELF file of unknown class {other}")),
        };
        let header = image.bytes(0, if wide { 64 } else { 52 })?;
        let machine = u16_at(&header, 18);
        if ident[5] != LITTLE_ENDIAN || !matches!(machine, MACHINE_386 | MACHINE_X86_64) {
            return Err(format!("an ELF file for another processor than x86 (machine {machine})"));
        }
        let (entry, at, size, count) = if wide {
            (u64_at(&header, 24), u64_at(&header, 32), u16_at(&header, 54), u16_at(&header, 56))
        } else {
            let (entry, at) = (u32_at(&header, 24), u32_at(&header, 28));
            (entry.into(), at.into(), u16_at(&header, 42), u16_at(&header, 44))
        };
        if count > MAX_HEADERS {
            return Err(format!("{count} program headers are more than any kernel has"));
        }
        if count > 0 && size != if wide { 56 } else { 32 } {
            return Err(format!("its program headers have {size} bytes, which is not their size in ELF"));
        }
        let table = image.bytes(at, u64::from(count) * u64::from(size))?;
        let read = if wide { ProgramHeader::wide } else { ProgramHeader::narrow };
        let headers = table.chunks_exact(usize::from(size.max(1))).map(read).collect();
        Ok(Self { entry, headers })
    }

    fn segments(&self) -> impl Iterator<Item = &ProgramHeader> {
        self.headers.iter().filter(|header| header.kind == PT_LOAD && header.memory_size > 0)
    }

    /// Put the segments at their physical addresses. Memory is all zeroes so far, as what follows the file's part of
    /// a segment must be.
    pub(super) fn load(&self, image: &mut Image, allocator: &mut GuestAllocator<'_>) -> Result<(), String> {
        for segment in self.segments() {
            if segment.file_size > segment.memory_size {
                return Err("a segment is longer in the file than in memory".to_owned());
            }
            allocator.take(segment.physical_address, segment.memory_size)?;
            image.copy(segment.offset, segment.file_size, allocator.memory(), segment.physical_address)?;
        }
        Ok(())
    }

    /// The physical address of the entry point. The header has the virtual one where they differ, as GRUB and QEMU
    /// take it.
    pub(super) fn entry(&self) -> Result<u32, String> {
        let within = |segment: &&ProgramHeader| {
            segment.flags & PF_X != 0
                && self.entry.checked_sub(segment.virtual_address).is_some_and(|at| at < segment.file_size)
        };
        let physical = match self.segments().find(within) {
            Some(segment) => segment.physical_address.wrapping_add(self.entry - segment.virtual_address),
            None => self.entry,
        };
        self.check_entry(physical)
    }

    /// `address`, if a loaded segment has it and 32-bit code can be there.
    pub(super) fn check_entry(&self, address: u64) -> Result<u32, String> {
        let loaded = self
            .segments()
            .any(|s| address.checked_sub(s.physical_address).is_some_and(|at| at < s.memory_size));
        match u32::try_from(address) {
            Ok(entry) if loaded => Ok(entry),
            _ => Err(format!("its entry point {address:#x} is in none of its segments below 4 GiB")),
        }
    }

    /// The contents of the first note of this name and type.
    pub(super) fn note(&self, image: &Image, name: &[u8], kind: u32) -> Result<Option<Vec<u8>>, String> {
        for header in self.headers.iter().filter(|header| header.kind == PT_NOTE) {
            if header.file_size > MAX_NOTES {
                return Err(format!("{} bytes of notes are more than any kernel has", header.file_size));
            }
            let notes = image.bytes(header.offset, header.file_size)?;
            // Notes of 64-bit files are aligned to 8 by the book and to 4 by custom; segments that say 8 may have
            // either.
            let aligns: &[usize] = if header.align == 8 { &[4, 8] } else { &[4] };
            if let Some(found) = aligns.iter().find_map(|align| find_note(&notes, *align, name, kind)) {
                return Ok(Some(found.to_vec()));
            }
        }
        Ok(None)
    }
}

impl ProgramHeader {
    fn wide(bytes: &[u8]) -> Self {
        let field = |at| u64_at(bytes, at);
        Self {
            kind: u32_at(bytes, 0),
            flags: u32_at(bytes, 4),
            offset: field(8),
            virtual_address: field(16),
            physical_address: field(24),
            file_size: field(32),
            memory_size: field(40),
            align: field(48),
        }
    }

    fn narrow(bytes: &[u8]) -> Self {
        let field = |at| u64::from(u32_at(bytes, at));
        Self {
            kind: u32_at(bytes, 0),
            flags: u32_at(bytes, 24),
            offset: field(4),
            virtual_address: field(8),
            physical_address: field(12),
            file_size: field(16),
            memory_size: field(20),
            align: field(28),
        }
    }
}

/// Walk the notes; `None` also where they make no sense.
fn find_note<'a>(mut notes: &'a [u8], align: usize, name: &[u8], kind: u32) -> Option<&'a [u8]> {
    const HEADER: usize = 12;
    while notes.len() >= HEADER {
        let (name_size, size) = (u32_at(notes, 0) as usize, u32_at(notes, 4) as usize);
        let start = HEADER.checked_add(name_size)?.checked_next_multiple_of(align)?;
        let end = start.checked_add(size)?;
        let (its_name, contents) = (notes.get(HEADER..HEADER + name_size)?, notes.get(start..end)?);
        if its_name == name && u32_at(notes, 8) == kind {
            return Some(contents);
        }
        notes = notes.get(end.checked_next_multiple_of(align)?..)?;
    }
    None
}

#[cfg(test)]
pub(super) mod tests;
