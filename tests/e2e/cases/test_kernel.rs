//! A kernel that is not Linux: its file and its module travel to the lab, its output and its status come back.

use std::fs;

use anyhow::{Result, ensure};

use crate::perfvisor::{self, COMMAND_LIMIT, RUN_FAILED};

const LOADED: u32 = 0x10_0000;
/// `mov esi, [ebx + 16]` (the command line), `mov dx, 0x3f8`, then a loop that says it; `mov eax, [ebx + 24]`,
/// `mov esi, [eax]` (the first module), and its first byte is said; `mov al, 0x2a`, `out 0xf4, al`.
const CODE: [u8; 26] = [
    0x8B, 0x73, 0x10, 0x66, 0xBA, 0xF8, 0x03, 0xAC, 0x84, 0xC0, 0x74, 0x03, 0xEE, 0xEB, 0xF8, 0x8B, 0x43,
    0x18, 0x8B, 0x30, 0xAC, 0xEE, 0xB0, 0x2A, 0xE6, 0xF4,
];

pub(super) fn image() -> Vec<u8> {
    image_of(&CODE)
}

/// A multiboot image that is no ELF file: its header has addresses, and the code follows it.
pub(super) fn image_of(code: &[u8]) -> Vec<u8> {
    const MAGIC: u32 = 0x1BAD_B002;
    const HAS_ADDRESSES: u32 = 1 << 16;
    let checksum = 0u32.wrapping_sub(MAGIC).wrapping_sub(HAS_ADDRESSES);
    let header = [MAGIC, HAS_ADDRESSES, checksum, LOADED, LOADED, 0, 0, LOADED + 32];
    header.iter().flat_map(|word| word.to_le_bytes()).chain(code.iter().copied()).collect()
}

pub(super) fn test_kernel() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (kernel, file) = (folder.path().join("test.bin"), folder.path().join("file"));
    fs::write(&kernel, image())?;
    fs::write(&file, "module")?;
    let (kernel, file) = (kernel.display().to_string(), file.display().to_string());
    let run = ["run", "--kernel", &kernel, "--module", &file];

    let ended = perfvisor::run([&run[..], &["--append", "some words"]].concat(), b"", COMMAND_LIMIT)?;
    ended.expect_status(0x2A << 1 | 1)?;
    ensure!(ended.stdout == b"test.bin some wordsm", "it said something else{ended}");
    perfvisor::run([&run[..], &["--", "true"]].concat(), b"", COMMAND_LIMIT)?
        .expect_refusal(RUN_FAILED, &["test.bin", "--append"])
}
