//! A kernel's file, whose every field may be wrong: nothing is read beyond its end.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use images::regular_file::RegularFile;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// The part at its beginning that tells what it is: a multiboot header lies in it (Multiboot 0.6.96, section 3.1).
pub(super) const HEAD: usize = 8192;

pub(super) struct Image {
    file: File,
    length: u64,
}

impl Image {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = RegularFile::open(path).map_err(|e| e.to_string())?;
        Ok(Self { length: file.length(), file: file.into_file() })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Its first [`HEAD`] bytes, or all if they are fewer.
    pub(super) fn head(&self) -> Result<Vec<u8>, String> {
        self.bytes(0, self.length.min(HEAD as u64))
    }

    /// `count` bytes at `at`. The caller bounds `count` by what makes sense there.
    pub(super) fn bytes(&self, at: u64, count: u64) -> Result<Vec<u8>, String> {
        self.check(at, count)?;
        let mut bytes = vec![0; count as usize];
        self.file.read_exact_at(&mut bytes, at).map_err(|e| e.to_string())?;
        Ok(bytes)
    }

    /// Copy `count` bytes at `at` to `to` in the guest.
    pub(super) fn copy(
        &mut self,
        at: u64,
        count: u64,
        memory: &GuestMemoryMmap,
        to: u64,
    ) -> Result<(), String> {
        self.check(at, count)?;
        self.file.seek(SeekFrom::Start(at)).map_err(|e| e.to_string())?;
        memory
            .read_exact_volatile_from(GuestAddress(to), &mut self.file, count as usize)
            .map_err(|e| e.to_string())
    }

    fn check(&self, at: u64, count: u64) -> Result<(), String> {
        match at.checked_add(count) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(format!(
                "truncated: its headers name {count} bytes at {at}, but it has {} bytes in all",
                self.length
            )),
        }
    }
}

/// Little-endian fields of `bytes`. The caller has seen to it that they are there.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
