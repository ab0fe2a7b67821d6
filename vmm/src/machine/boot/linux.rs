//! Loading of a Linux kernel by the 64-bit boot protocol (Documentation/arch/x86/boot.rst).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use images::regular_file::RegularFile;
use linux_loader::bootparam::{boot_e820_entry, boot_params};
use linux_loader::configurator::{BootConfigurator, BootParams, linux::LinuxBootConfigurator};
use linux_loader::loader::{KernelLoader, bzimage::BzImage};
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

use super::memory_map::memory_map;
use crate::address_map;
use crate::machine::config::Initrd;
use crate::machine::error::Error;
use crate::machine::{acpi, memory, registers};

/// `xloadflags`: the kernel has the 64-bit entry point at 0x200.
const XLF_KERNEL_64: u16 = 1;
/// `type_of_loader`: undefined.
const LOADER_UNDEFINED: u8 = 0xFF;
/// The setup header's magic, and where it is.
const MAGIC: &[u8] = b"HdrS";
const MAGIC_AT: usize = 0x202;
/// Offset of the 64-bit entry from the start of the protected-mode kernel.
const ENTRY_64: u64 = 0x200;

/// Whether a file that begins with `head` is a bzImage.
pub(super) fn is_bzimage(head: &[u8]) -> bool {
    head.get(MAGIC_AT..MAGIC_AT + MAGIC.len()) == Some(MAGIC)
}

/// Put kernel, initial RAM disk, command line, ACPI tables and boot parameters into memory.
/// Returns the address at which the first vCPU starts.
pub(super) fn load(
    memory: &GuestMemoryMmap,
    kernel: &Path,
    initrd: &Initrd,
    cmdline: &str,
    vcpus: u8,
) -> Result<u64, Error> {
    let bad_kernel = |reason: String| Error::Kernel { path: kernel.to_owned(), reason };
    let mut file = RegularFile::open(kernel).map_err(|e| bad_kernel(e.to_string()))?.into_file();
    check_length(&mut file).map_err(bad_kernel)?;
    let loaded = BzImage::load(memory, None, &mut file, Some(GuestAddress(address_map::HIGH_MEMORY)))
        .map_err(|e| bad_kernel(format!("not a bzImage that fits into the guest's memory ({e})")))?;
    let mut header = loaded.setup_header.ok_or_else(|| bad_kernel("it has no setup header".to_owned()))?;
    if { header.version } < 0x020C || { header.xloadflags } & XLF_KERNEL_64 == 0 {
        return Err(bad_kernel("it has no 64-bit entry point (boot protocol below 2.12)".to_owned()));
    }

    // The kernel decompresses itself to pref_address and works within init_size bytes of it; the initial
    // RAM disk must stay clear of that.
    let kernel_end =
        loaded.kernel_end.max({ header.pref_address }.saturating_add(u64::from(header.init_size)));
    let (initrd_at, initrd_size) =
        load_initrd(memory, initrd, kernel_end, u64::from(header.initrd_addr_max))?;

    header.type_of_loader = LOADER_UNDEFINED;
    header.ramdisk_image = initrd_at as u32;
    header.ramdisk_size = initrd_size as u32;
    header.cmd_line_ptr = address_map::CMDLINE as u32;
    let limit = address_map::CMDLINE_MAX.min({ header.cmdline_size } as usize + 1);
    if cmdline.len() >= limit || cmdline.contains('\0') {
        return Err(Error::CommandLine { length: cmdline.len(), limit: limit - 1 });
    }
    memory
        .write_slice(&[cmdline.as_bytes(), b"\0"].concat(), GuestAddress(address_map::CMDLINE))
        .map_err(Error::Memory)?;

    let mut params =
        boot_params { hdr: header, acpi_rsdp_addr: acpi::write(memory, vcpus)?, ..Default::default() };
    for (i, part) in memory_map(memory).into_iter().enumerate() {
        params.e820_table[i] =
            boot_e820_entry { addr: part.range.start, size: part.size(), r#type: part.kind as u32 };
        params.e820_entries = i as u8 + 1;
    }
    LinuxBootConfigurator::write_bootparams(
        &BootParams::new(&params, GuestAddress(address_map::ZERO_PAGE)),
        memory,
    )
    .map_err(|e| bad_kernel(e.to_string()))?;
    registers::write_tables(memory)?;
    Ok(loaded.kernel_load.raw_value() + ENTRY_64)
}

/// A truncated image would load and then die in the guest without a word: compare the file with the length its
/// header states (`syssize`, in 16-byte units, protected-mode part).
fn check_length(file: &mut File) -> Result<(), String> {
    let mut head = [0u8; 0x208];
    file.read_exact(&mut head).map_err(|_| "truncated: it ends within its setup header".to_owned())?;
    let setup_sectors = if head[0x1F1] == 0 { 4 } else { u64::from(head[0x1F1]) };
    let mut syssize = [0u8; 4];
    syssize.copy_from_slice(&head[0x1F4..0x1F8]);
    let stated = (setup_sectors + 1) * 512 + u64::from(u32::from_le_bytes(syssize)) * 16;
    let actual = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    if actual < stated {
        return Err(format!("truncated: {actual} bytes of the {stated} that its header states"));
    }
    Ok(())
}

/// Put the initial RAM disk as high as it may lie, page-aligned.
fn load_initrd(
    memory: &GuestMemoryMmap,
    initrd: &Initrd,
    kernel_end: u64,
    highest: u64,
) -> Result<(u64, u64), Error> {
    let bad = |reason: String| Error::Initrd {
        path: initrd.base.clone().unwrap_or_else(|| "(copied files)".into()),
        reason,
    };
    let base = match &initrd.base {
        Some(path) => Some(RegularFile::open(path).map_err(|e| bad(e.to_string()))?),
        None => None,
    };
    let base_size = base.as_ref().map_or(0, RegularFile::length);
    // The kernel skips zero bytes between archives and wants the next one 4-byte aligned.
    let overlay_offset = base_size.next_multiple_of(4);
    let size = overlay_offset + initrd.overlay.len() as u64;
    if size == 0 {
        return Ok((0, 0));
    }
    let top = memory::low_end(memory).min(highest.saturating_add(1));
    let at = top.checked_sub(size).map(|at| at & !0xFFF).filter(|at| *at >= kernel_end).ok_or_else(|| {
        bad(format!(
            "{} MiB do not fit beside the kernel; give the guest more memory (--memory)",
            size.div_ceil(1 << 20)
        ))
    })?;
    check_unpacking(initrd, memory::size(memory), kernel_end, size).map_err(bad)?;
    if let Some(file) = base {
        memory
            .read_exact_volatile_from(GuestAddress(at), &mut file.into_file(), base_size as usize)
            .map_err(|e| bad(e.to_string()))?;
    }
    memory.write_slice(&initrd.overlay, GuestAddress(at + overlay_offset)).map_err(Error::Memory)?;
    Ok((at, size))
}

/// The kernel unpacks the archive into a tmpfs, which may take half of the memory that the kernel and the archive leave. What
/// does not fit is left out or cut off, and only the console says so.
fn check_unpacking(initrd: &Initrd, memory: u64, kernel_end: u64, size: u64) -> Result<(), String> {
    const STEP: u64 = 32 << 20;
    let needed = kernel_end.saturating_add(size.saturating_mul(3));
    if initrd.overlay.is_empty() || needed <= memory {
        return Ok(());
    }
    Err(format!(
        "{} MiB of files cannot be unpacked in {} MiB of memory; give the guest more (--memory {}M)",
        size.div_ceil(1 << 20),
        memory >> 20,
        needed.div_ceil(STEP).saturating_mul(STEP) >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_that_the_kernel_could_not_unpack_are_refused() {
        const MIB: u64 = 1 << 20;
        let copied = Initrd { base: None, overlay: vec![0] };
        assert_eq!(check_unpacking(&copied, 256 * MIB, 61 * MIB, 65 * MIB), Ok(()));
        let refused = check_unpacking(&copied, 256 * MIB, 61 * MIB, 70 * MIB).unwrap_err();
        assert!(refused.contains("70 MiB") && refused.contains("--memory 288M"), "{refused}");
        assert!(check_unpacking(&copied, 256 * MIB, 61 * MIB, u64::MAX / 2).is_err());
        // Nothing was asked for that could be missing.
        let bare = Initrd { base: None, overlay: Vec::new() };
        assert_eq!(check_unpacking(&bare, 64 * MIB, 61 * MIB, 7 * MIB), Ok(()));
    }

    fn image(sectors: u8, syssize: u32, length: usize) -> tempfile::NamedTempFile {
        let mut bytes = vec![0u8; length];
        bytes[0x1F1] = sectors;
        bytes[0x1F4..0x1F8].copy_from_slice(&syssize.to_le_bytes());
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn a_kernel_that_wants_impossible_addresses_is_refused() {
        let mut file = image(1, 100, 2 * 512 + 16 * 100);
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 8 << 20)]).unwrap();
        let initrd = Initrd { base: None, overlay: vec![0; 4096] };
        let header = [
            (0x206, &0x020Fu16.to_le_bytes()[..]),
            (0x211, &[1]),
            (0x214, &0x10_0000u32.to_le_bytes()),
            (0x22C, &u32::MAX.to_le_bytes()),
            (0x236, &1u16.to_le_bytes()),
            (0x238, &2047u32.to_le_bytes()),
        ];
        for pref_address in [u64::MAX, u64::MAX - 0x1000] {
            for (at, bytes) in header
                .iter()
                .copied()
                .chain([(0x258, &pref_address.to_le_bytes()[..]), (0x260, &0x1000u32.to_le_bytes())])
            {
                file.as_file_mut().seek(SeekFrom::Start(at)).unwrap();
                file.write_all(bytes).unwrap();
            }
            let refused = load(&memory, file.path(), &initrd, "", 1);
            assert!(matches!(refused, Err(Error::Initrd { .. })), "{refused:?}");
        }
    }

    #[test]
    fn an_initial_ram_disk_that_is_no_file_is_refused_and_not_waited_for() {
        let mut file = image(1, 100, 2 * 512 + 16 * 100);
        let header = [
            (0x206, &0x020Fu16.to_le_bytes()[..]),
            (0x211, &[1]),
            (0x236, &[1, 0]),
            (0x238, &[0xFF, 7, 0, 0]),
        ];
        for (at, bytes) in header.into_iter().chain([(0x214, &[0, 0, 0x10, 0][..]), (0x22C, &[0xFF; 4])]) {
            file.as_file_mut().seek(SeekFrom::Start(at)).unwrap();
            file.write_all(bytes).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let (fifo, sparse) = (folder.path().join("fifo"), folder.path().join("sparse"));
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
        for (path, reason) in [
            (fifo, "a FIFO"),
            ("/dev/zero".into(), "a device"),
            (folder.path().to_owned(), "a folder"),
            (sparse, "--memory"),
        ] {
            let (sender, refused) = std::sync::mpsc::channel();
            let kernel = file.path().to_owned();
            std::thread::spawn(move || {
                let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 8 << 20)]).unwrap();
                let initrd = Initrd { base: Some(path), overlay: Vec::new() };
                sender.send(load(&memory, &kernel, &initrd, "", 1).map_err(|error| error.to_string()))
            });
            let refused = refused.recv_timeout(std::time::Duration::from_secs(20)).expect("it ends");
            assert!(refused.as_ref().is_err_and(|text| text.contains(reason)), "{reason}: {refused:?}");
        }
    }

    #[test]
    fn truncated_kernels_are_told_from_whole_ones() {
        let whole = 2 * 512 + 16 * 100;
        let check = |f: &tempfile::NamedTempFile| check_length(&mut f.reopen().unwrap());
        assert_eq!(check(&image(1, 100, whole)), Ok(()));
        assert!(check(&image(1, 100, whole - 1)).unwrap_err().starts_with("truncated"));
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(check(&empty).unwrap_err().starts_with("truncated"));
    }
}
