//! Kernels that need not decompress themselves, for guests in the lab machine: emulated, that takes seconds of each start.
//!
//! A bzImage holds the compressed ELF file `vmlinux`. Its segments, as they lie in memory, make another bzImage, behind a page
//! with the 64-bit entry point. Such a kernel runs where it was linked to, without KASLR, so it stays in the lab.
//!
//! Source: Documentation/arch/x86/boot.rst (setup header, 64-bit protocol); scripts/extract-vmlinux.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use goblin::elf::Elf;
use goblin::elf::program_header::PT_LOAD;

use crate::artefact;
use crate::process::Program;

// Fields of the setup header.
const SETUP_SECTS: usize = 0x1F1;
const SYSSIZE: usize = 0x1F4;
const CODE32_START: usize = 0x214;
const RELOCATABLE_KERNEL: usize = 0x234;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24C;
const PREF_ADDRESS: usize = 0x258;
const HEADER_END: usize = 0x268;

/// The page in front of the kernel. The 64-bit protocol enters a kernel so far behind its beginning.
const PAGE: usize = 0x1000;
const ENTRY_64: usize = 0x200;
/// `JMP rel32`.
const JUMP: u8 = 0xE9;
const JUMP_LENGTH: usize = 5;

/// Programs that decompress from the file named last to standard output, by the payload's first bytes.
const DECOMPRESS: [(&[u8], [&str; 2]); 3] = [
    (&[0x28, 0xB5, 0x2F, 0xFD], ["zstd", "-dcq"]),
    (&[0x02, 0x21, 0x4C, 0x18], ["lz4", "-dcq"]),
    (b"\xFD7zXZ\0", ["xz", "-dc"]),
];
/// The kernel's build appends the length of what it compressed (`size_append` in scripts/Makefile.lib).
const APPENDED: usize = 4;

/// Writes a bzImage that has the kernel of another uncompressed.
pub(crate) fn write(bzimage: &Path, uncompressed: &Path) -> Result<()> {
    let image = fs::read(bzimage).with_context(|| format!("cannot read {}", bzimage.display()))?;
    let image = extract(&image, uncompressed).and_then(|elf| wrap(&image, &elf));
    let image = image.with_context(|| format!("{}", bzimage.display()))?;
    fs::write(uncompressed, image).with_context(|| format!("cannot write {}", uncompressed.display()))
}

/// What a bzImage decompresses to. The payload goes by a file beside `scratch`.
fn extract(image: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    let start = protected_mode(image)? + field(image, PAYLOAD_OFFSET)?;
    let payload = image.get(start..).and_then(|rest| rest.get(..field(image, PAYLOAD_LENGTH).ok()?));
    let payload = payload.context("its payload is not in the file")?;
    let by = DECOMPRESS.iter().find(|(magic, _)| payload.starts_with(magic));
    let (_, [program, options]) = by.context("it is compressed in a way not known here")?;
    let file = scratch.with_extension("payload");
    fs::write(&file, &payload[..payload.len().saturating_sub(APPENDED)])
        .with_context(|| format!("cannot write {}", file.display()))?;
    let elf = Program::new(program).arg(options).arg(&file).output();
    artefact::remove(&file)?;
    elf
}

/// A bzImage with the setup part of `image` and the segments of `vmlinux`.
fn wrap(image: &[u8], vmlinux: &[u8]) -> Result<Vec<u8>> {
    let elf = Elf::parse(vmlinux).context("its payload is not an ELF file")?;
    let segments = || elf.program_headers.iter().filter(|header| header.p_type == PT_LOAD);
    let base = segments().map(|header| header.p_paddr).min().context("it has no segments")?;
    let load = base.checked_sub(PAGE as u64).context("there is no room in front of it")?;
    let mut kernel = vec![0; PAGE];
    for header in segments() {
        let at = usize::try_from(header.p_paddr - load)?;
        let bytes = vmlinux.get(header.file_range()).context("a segment is not in the file")?;
        let end = at + bytes.len();
        // No kernel is so far from its own beginning.
        ensure!(end < 1 << 30, "a segment at {:#x}", header.p_paddr);
        kernel.resize(kernel.len().max(end), 0);
        kernel[at..end].copy_from_slice(bytes);
    }
    let behind = load + (ENTRY_64 + JUMP_LENGTH) as u64;
    let distance = i32::try_from(elf.entry.wrapping_sub(behind) as i64).context("its entry is far away")?;
    kernel[ENTRY_64] = JUMP;
    kernel[ENTRY_64 + 1..ENTRY_64 + JUMP_LENGTH].copy_from_slice(&distance.to_le_bytes());
    kernel.resize(kernel.len().next_multiple_of(16), 0);

    let mut whole = image.get(..protected_mode(image)?).context("truncated")?.to_vec();
    ensure!(whole.len() >= HEADER_END, "truncated");
    whole[SYSSIZE..SYSSIZE + 4].copy_from_slice(&u32::try_from(kernel.len() / 16)?.to_le_bytes());
    whole[CODE32_START..CODE32_START + 4].copy_from_slice(&u32::try_from(load)?.to_le_bytes());
    whole[RELOCATABLE_KERNEL] = 0;
    whole[PREF_ADDRESS..PREF_ADDRESS + 8].copy_from_slice(&load.to_le_bytes());
    whole.append(&mut kernel);
    Ok(whole)
}

/// Where the protected-mode part begins.
fn protected_mode(image: &[u8]) -> Result<usize> {
    let sectors = match image.get(SETUP_SECTS).context("truncated")? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    Ok((sectors + 1) * 512)
}

fn field(image: &[u8], at: usize) -> Result<usize> {
    let bytes = image.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).context("truncated")?;
    Ok(u32::from_le_bytes(bytes) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with one segment of `code` for 0x1000000, entered at its third byte.
    fn elf(code: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 120];
        file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0");
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(20, &[1]);
        put(24, &0x100_0002u64.to_le_bytes());
        put(32, &64u64.to_le_bytes());
        put(52, &[64, 0, 56, 0, 1, 0]);
        put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
        for (at, value) in [(72, 120), (80, 0x100_0000), (88, 0x100_0000), (96, code.len()), (104, 0x2000)] {
            put(at, &(value as u64).to_le_bytes());
        }
        file.extend_from_slice(code);
        file
    }

    fn setup(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * 512];
        image[SETUP_SECTS] = 1;
        image[RELOCATABLE_KERNEL] = 1;
        image[PAYLOAD_OFFSET] = 16;
        image[PAYLOAD_LENGTH..][..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(&[0; 16]);
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn the_kernel_lies_behind_its_entry() {
        let image = wrap(&setup(b"whatever"), &elf(b"a kernel")).unwrap();
        let kernel = &image[2 * 512..];
        assert_eq!(kernel.len() % 16, 0);
        assert_eq!(field(&image, SYSSIZE).unwrap() * 16, kernel.len());
        assert_eq!(field(&image, CODE32_START).unwrap(), 0xFF_F000);
        assert_eq!(field(&image, PREF_ADDRESS).unwrap(), 0xFF_F000);
        assert_eq!(image[RELOCATABLE_KERNEL], 0);
        assert_eq!(&kernel[PAGE..PAGE + 8], b"a kernel");
        // From behind the jump to the third byte.
        assert_eq!(kernel[ENTRY_64..ENTRY_64 + 5], [0xE9, 0xFD, 0x0D, 0, 0]);
    }

    #[test]
    fn the_payload_is_decompressed() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, scratch) = (folder.path().join("plain"), folder.path().join("vmlinux"));
        fs::write(&plain, elf(b"a kernel")).unwrap();
        for (program, options) in [("zstd", "-cq"), ("lz4", "-lcq"), ("xz", "-c")] {
            let mut payload = Program::new(program).arg(options).arg(&plain).output().unwrap();
            payload.extend_from_slice(&[0; APPENDED]);
            assert_eq!(extract(&setup(&payload), &scratch).unwrap(), elf(b"a kernel"), "{program}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing stays");
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        let scratch = Path::new("/nowhere/vmlinux");
        assert!(extract(b"short", scratch).is_err());
        assert!(extract(&setup(b"plain text"), scratch).unwrap_err().to_string().contains("compressed"));
        let mut cut = setup(b"12345678");
        cut.pop();
        assert!(extract(&cut, scratch).is_err());
        assert!(wrap(&setup(b""), b"no ELF file").is_err());
        let mut outside = elf(b"a kernel");
        outside.pop();
        assert!(wrap(&setup(b""), &outside).is_err());
    }
}
