//! What files are taken for, and what kernels find in memory.

use std::fs;
use std::path::PathBuf;

use linux_loader::loader::elf::start_info::{hvm_memmap_table_entry, hvm_modlist_entry, hvm_start_info};
use proptest::prelude::*;
use tempfile::TempDir;
use vm_memory::{ByteValued, Bytes, GuestAddress};

use super::elf::tests::{Part, file, pvh_note};
use super::entry::ProtectedMode;
use super::*;
use crate::address_map;
use crate::machine::config::{Initrd, Module};

const MEMORY: u64 = 4 << 20;
const ENTRY: u32 = 0x10_0010;

struct Case {
    folder: TempDir,
    config: Config,
    memory: GuestMemoryMmap,
}

impl Case {
    fn new(kernel: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.elf");
        fs::write(&path, kernel).unwrap();
        let config = Config {
            vcpus: 1,
            memory: MEMORY,
            kernel: path,
            initrd: Initrd::default(),
            modules: Vec::new(),
            cmdline: String::new(),
            pmu: crate::machine::GuestPmu::None,
            confinement: crate::confinement::Confinement::none(),
        };
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY as usize)]).unwrap();
        Self { folder, config, memory }
    }

    fn with_module(mut self, name: &str, words: &str, contents: &[u8]) -> Self {
        let path: PathBuf = self.folder.path().join(name);
        fs::write(&path, contents).unwrap();
        self.config.modules.push(Module { path, words: words.to_owned() });
        self
    }

    fn load(&self) -> Result<Entry, Error> {
        load(&self.memory, &self.config, 1)
    }

    fn protected(&self) -> ProtectedMode {
        match self.load() {
            Ok(Entry::Protected(entry)) => entry,
            other => panic!("{other:?}"),
        }
    }

    fn obj<T: ByteValued>(&self, at: u64) -> T {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn word(&self, at: u32) -> u32 {
        self.obj(at.into())
    }

    fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    fn text(&self, at: u64) -> String {
        let bytes = (at..).map(|at| self.obj::<u8>(at)).take_while(|byte| *byte != 0).collect();
        String::from_utf8(bytes).unwrap()
    }
}

/// Code at 1 MiB; and more where the information would go.
fn pvh(more: &[Part]) -> Vec<u8> {
    let mut parts = vec![Part::load(0x10_0000, &[0x90; 0x40]), Part::note(&pvh_note(ENTRY))];
    parts.extend(more.iter().cloned());
    file(true, 0, &parts)
}

fn multiboot_header(flags: u32) -> Vec<u8> {
    let magic = 0x1BAD_B002u32;
    [magic, flags, 0u32.wrapping_sub(magic).wrapping_sub(flags)]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect()
}

fn multiboot(wide: bool) -> Vec<u8> {
    let mut code = multiboot_header(3);
    code.resize(0x40, 0x90);
    file(wide, ENTRY.into(), &[Part::load(0x10_0000, &code)])
}

#[test]
fn files_are_taken_for_what_they_are() {
    let mut bzimage = vec![0; 0x400];
    bzimage[0x202..0x206].copy_from_slice(b"HdrS");
    let kind = |bytes: &[u8]| recognize(&Case::new(bytes).config.kernel);
    assert_eq!(kind(&bzimage).unwrap(), Protocol::Linux);
    assert_eq!(kind(&pvh(&[])).unwrap(), Protocol::Pvh);
    assert_eq!(kind(&multiboot(false)).unwrap(), Protocol::Multiboot);
    assert_eq!(kind(&multiboot(true)).unwrap(), Protocol::Multiboot);
    for (bytes, what) in [
        (vec![], "empty"),
        (vec![0x1F, 0x8B, 8, 0], "gzip"),
        (b"MZ\0\0".to_vec(), "EFI"),
        (b"#!/bin/sh\n".to_vec(), "script"),
        (b"text".to_vec(), "none of these"),
        (file(true, 0, &[Part::load(0x10_0000, b"code")]), "neither a PVH note"),
        (file(true, 0, &[])[..20].to_vec(), "truncated"),
    ] {
        let reason = kind(&bytes).unwrap_err().to_string();
        assert!(reason.contains(what) && reason.contains("test.elf"), "{reason}");
    }
}

#[test]
fn a_pvh_kernel_finds_everything() {
    let mut case =
        Case::new(&pvh(&[])).with_module("one", "a b", b"first").with_module("two", "", &[2; 5000]);
    case.config.cmdline = "words for it".to_owned();
    let entry = case.protected();
    assert_eq!((entry.eip, entry.eax), (ENTRY, 0));
    // The BIOS data area: EBDA's segment, KiB below it.
    assert_eq!((case.obj::<u16>(0x40E), case.obj::<u16>(0x413)), (0x9FC0, 639));

    let info: hvm_start_info = case.obj(entry.ebx.into());
    assert_eq!((info.magic, info.version, info.nr_modules), (0x336E_C578, 1, 2));
    assert_eq!(case.text(info.cmdline_paddr), "words for it");
    assert_eq!(case.bytes(info.rsdp_paddr, 8), b"RSD PTR ");
    let modules: [hvm_modlist_entry; 2] =
        [0, 1].map(|i| case.obj(info.modlist_paddr + i * size_of::<hvm_modlist_entry>() as u64));
    assert_eq!(case.bytes(modules[0].paddr, 5), b"first");
    assert_eq!(case.bytes(modules[1].paddr, 5000), [2; 5000]);
    assert_eq!(modules.map(|module| (module.size, module.paddr % 4096)), [(5, 0), (5000, 0)]);
    assert_eq!(case.text(modules[0].cmdline_paddr), "a b");
    assert_eq!(modules[1].cmdline_paddr, 0);
    let map: Vec<_> = (0..u64::from(info.memmap_entries))
        .map(|i| case.obj::<hvm_memmap_table_entry>(info.memmap_paddr + i * 24))
        .map(|entry| (entry.addr, entry.size, entry.type_))
        .collect();
    let (low, acpi) = (address_map::LOW_MEMORY_END, address_map::ACPI);
    assert_eq!(map, [(0, low, 1), (acpi, 0x2_0000, 2), (0x10_0000, MEMORY - 0x10_0000, 1)]);
}

#[test]
fn a_multiboot_kernel_finds_everything() {
    for wide in [false, true] {
        let mut case = Case::new(&multiboot(wide))
            .with_module("one", "a b", b"first")
            .with_module("two", "", &[2; 5000]);
        case.config.cmdline = "words for it".to_owned();
        let ProtectedMode { eip, eax, ebx, .. } = case.protected();
        assert_eq!((eip, eax), (ENTRY, 0x2BAD_B002));
        let info = |at: u32| case.word(ebx + at);
        assert_eq!(info(0), 0x24D);
        assert_eq!((info(4), info(8)), (639, 3 << 10));
        assert_eq!(case.text(info(16).into()), "test.elf words for it");
        assert_eq!(info(20), 2);
        let module = |i: u32| [0, 4, 8].map(|field| case.word(info(24) + 16 * i + field));
        let [start, end, words] = module(0);
        assert_eq!(case.bytes(start.into(), (end - start) as usize), b"first");
        assert_eq!(case.text(words.into()), "one a b");
        let [start, end, words] = module(1);
        assert_eq!(case.bytes(start.into(), (end - start) as usize), [2; 5000]);
        assert_eq!((start % 4096, case.text(words.into())), (0, "two".to_owned()));
        // Entries do not count their own size field.
        let (length, map) = (info(44), info(48));
        assert_eq!((length, case.word(map), case.word(map + 24)), (72, 20, 20));
        assert_eq!(case.obj::<u64>(u64::from(map) + 24 + 4), address_map::ACPI);
        assert_eq!(case.word(map + 24 + 20), 2);
        assert_eq!(case.text(info(64).into()), "perfvisor");
    }
}

#[test]
fn a_multiboot_file_need_not_be_an_elf_file() {
    let mut bytes = vec![0x90; 0x100];
    bytes.extend(multiboot_header(1 << 16));
    let addresses = [0x20_0100u32, 0x20_0000, 0, 0x20_2000, 0x20_0080];
    bytes.extend(addresses.iter().flat_map(|address| address.to_le_bytes()));
    let case = Case::new(&bytes).with_module("one", "", b"x");
    let entry = case.protected();
    assert_eq!(entry.eip, 0x20_0080);
    assert_eq!(case.bytes(0x20_0000, bytes.len()), bytes);
    // The module lies behind what the kernel takes in memory, not only behind what it has in the file.
    assert_eq!(case.word(case.word(entry.ebx + 24)), 0x20_2000);
}

#[test]
fn boot_information_lies_clear_of_the_kernel() {
    // All of low memory but a hole below the usual place, and that place itself.
    let taken = vec![0xC3; (address_map::LOW_MEMORY_END - 0x9000) as usize];
    let case = Case::new(&pvh(&[Part::load(0x9000, &taken)])).with_module("one", "w", b"x");
    let entry = case.protected();
    assert_eq!(case.bytes(0x9000, taken.len()), taken);
    assert!(entry.ebx >= 0x10_0000 && entry.gdt >= 0x10_0000, "{entry:x?}");
    let info: hvm_start_info = case.obj(entry.ebx.into());
    let module: hvm_modlist_entry = case.obj(info.modlist_paddr);
    assert_eq!(case.bytes(module.paddr, 1), b"x");
    assert_eq!(case.bytes(0x10_0000, 0x40), [0x90; 0x40]);
}

#[test]
fn uninitialised_data_is_zero_wherever_it_lies() {
    let low = Part { memory_size: 0x9000, ..Part::load(0, b"") };
    let case = Case::new(&pvh(&[low]));
    case.protected();
    assert_eq!(case.bytes(0, 0x9000), vec![0; 0x9000]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |case: Case| case.load().unwrap_err().to_string();
    assert!(refused(Case::new(&pvh(&[])).with_module("big", "", &vec![0; 4 << 20])).contains("--memory"));
    let mut missing = Case::new(&pvh(&[]));
    missing.config.modules.push("/nowhere/file".parse().unwrap());
    assert!(refused(missing).contains("/nowhere/file"));
    // No room at all for its boot information.
    let all = [
        Part::load(0, &vec![0; address_map::LOW_MEMORY_END as usize]),
        Part { memory_size: MEMORY - 0x10_1000, ..Part::load(0x10_1000, b"") },
        Part { memory_size: 0x1000 - 0x40, ..Part::load(0x10_0040, b"") },
    ];
    assert!(refused(Case::new(&pvh(&all))).contains("boot information"));
}

proptest! {
    /// Whatever the file, loading it ends, and a kernel that is started starts within memory.
    #[test]
    fn files_of_garbage_are_no_panic(
        which in 0usize..3,
        changes in prop::collection::vec((0usize..0x180, any::<u8>()), 0..10),
    ) {
        let mut bytes = [pvh(&[]), multiboot(true), multiboot(false)][which].clone();
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(Entry::Protected(entry)) = Case::new(&bytes).load() {
            prop_assert!(u64::from(entry.eip) < MEMORY && u64::from(entry.ebx) < MEMORY);
        }
    }
}
