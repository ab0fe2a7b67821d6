//! What machines are started with that shall do one thing only: made here, byte by byte, so that nothing else costs.

use std::path::Path;

use anyhow::{Context, Result};
use images::layout::Layout;
use images::tree::Tree;

/// What the first program and the null kernel say, and nothing else.
pub(crate) const FIRST_WORDS: &str = "first\n";

/// Where both are loaded: above what firmware and VMMs put into low memory.
const LOADED: u64 = 0x20_0000;
/// Bytes of the file before the code: the header, two segments, the note.
const CODE: u64 = 64 + 2 * 56 + NOTE as u64;
const NOTE: usize = 24;

/// `write(1, "first\n", 6)`, then `pause` for ever.
const PROGRAM: [u8; 33] = [
    0xB8, 1, 0, 0, 0, 0xBF, 1, 0, 0, 0, // mov eax, 1; mov edi, 1
    0x48, 0x8D, 0x35, 0x10, 0, 0, 0, // lea rsi, [words]
    0xBA, 6, 0, 0, 0, 0x0F, 0x05, // mov edx, 6; syscall
    0xB8, 0x22, 0, 0, 0, 0x0F, 0x05, 0xEB, 0xF7, // mov eax, 34; syscall; again
];

/// In 32-bit protected mode: the words to port 0x3F8, then `hlt` for ever.
const KERNEL: [u8; 22] = [
    0xFC, 0xBE, WORDS[0], WORDS[1], WORDS[2], WORDS[3], // cld; mov esi, words
    0xB9, 6, 0, 0, 0, 0x66, 0xBA, 0xF8, 0x03, // mov ecx, 6; mov dx, 0x3F8
    0xAC, 0xEE, 0xE2, 0xFC, // lodsb; out dx, al; loop
    0xF4, 0xEB, 0xFD, // hlt; again
];
/// Where the kernel's words are in memory.
const WORDS: [u8; 4] = ((LOADED + CODE + 22) as u32).to_le_bytes();

/// An initramfs with a first program that says so.
pub(crate) fn first_program() -> Result<Vec<u8>> {
    let mut tree = Tree::new();
    tree.folder("/dev")?;
    tree.character_device("/dev/console", 0o600, 5, 1)?;
    tree.file("/init", 0o755, elf(&PROGRAM))?;
    tree.to_cpio()
}

/// A kernel that says so: the VMM's own start is all there is.
pub(crate) fn null_kernel() -> Vec<u8> {
    elf(&KERNEL)
}

/// An initramfs in which `costs` is the first program, for VMMs without an agent.
pub(crate) fn costs(layout: &Layout, series: &str, program: &Path, operations: &[String]) -> Result<Vec<u8>> {
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut tree = Tree::new();
    for folder in ["/dev", "/proc", "/sys"] {
        tree.folder(folder)?;
    }
    tree.character_device("/dev/console", 0o600, 5, 1)?;
    tree.file("/init", 0o755, read(program)?)?;
    let module = layout.module(series, "msr").context("the kernel's module msr is not there")?;
    tree.file("/msr.ko", 0o644, read(&module)?)?;
    tree.file("/operations", 0o644, operations.join("\n").into_bytes())?;
    tree.to_cpio()
}

/// An x86-64 ELF file of one segment. A note names the PVH entry (Linux's `XEN_ELFNOTE_PHYS32_ENTRY`), which programs
/// do not mind.
fn elf(code: &[u8]) -> Vec<u8> {
    const LOAD: u32 = 1;
    const NOTES: u32 = 4;
    const READ_EXECUTE: u32 = 5;
    const PHYS32_ENTRY: u32 = 18;
    let entry = LOADED + CODE;
    let size = CODE + (code.len() + FIRST_WORDS.len()) as u64;
    let mut file = b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    // An executable for x86-64.
    put(&[2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [entry, 64, 0] {
        put(&word.to_le_bytes());
    }
    // No flags; sizes of the header and of a segment's; two of those, no sections.
    for half in [0u16, 0, 64, 56, 2, 0, 0, 0] {
        put(&half.to_le_bytes());
    }
    let note = 64 + 2 * 56;
    for (kind, offset, length, align) in [(LOAD, 0, size, 0x1000), (NOTES, note, NOTE as u64, 4)] {
        put(&kind.to_le_bytes());
        put(&READ_EXECUTE.to_le_bytes());
        for word in [offset, LOADED + offset, LOADED + offset, length, length, align] {
            put(&word.to_le_bytes());
        }
    }
    for word in [4, 8, PHYS32_ENTRY] {
        put(&word.to_le_bytes());
    }
    put(b"Xen\0");
    put(&entry.to_le_bytes());
    put(code);
    put(FIRST_WORDS.as_bytes());
    file
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Command, Stdio};
    use std::{fs, io::Read};

    use super::*;

    #[test]
    fn the_first_program_says_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("first");
        fs::write(&program, elf(&PROGRAM)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
        let mut words = [0; FIRST_WORDS.len()];
        child.stdout.take().unwrap().read_exact(&mut words).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(words, FIRST_WORDS.as_bytes());
    }
}
