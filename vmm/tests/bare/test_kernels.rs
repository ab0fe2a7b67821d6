//! Kernels started by PVH and multiboot: what they find, and how their machines end.

use std::path::Path;

use libtest_mimic::Trial;
use perfvisor::devices::stop::Stop;
use perfvisor::machine::Module;

use crate::kernel::{Format, LOADED, Step, kernel};
use crate::running::run_kernel;
use crate::trial::trial;

/// PVH's start information, multiboot's: offsets of fields.
mod pvh {
    pub(super) const MODULES: u32 = 16;
    pub(super) const CMDLINE: u32 = 24;
    pub(super) const RSDP: u32 = 32;
    pub(super) const MEMORY_MAP: u32 = 40;
}
mod multiboot {
    pub(super) const CMDLINE: u32 = 16;
    pub(super) const MODULES: u32 = 24;
    pub(super) const MEMORY_MAP: u32 = 48;
}

/// To the field at this offset of the structure that EBX names, and where it leads.
fn follow(offset: u32) -> [Step; 3] {
    [Step::Start, Step::Add(offset), Step::Follow]
}

fn exit(code: u32) -> Step {
    Step::Out(0xF4, 4, code)
}

/// Run a kernel with two modules and a command line; what it said, and how it ended.
fn run(format: Format, script: &[Step]) -> (Vec<u8>, Stop) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path
    };
    let modules = vec![
        Module { path: file("one", b"first module"), words: "its words".to_owned() },
        Module { path: file("two", &[0x5A; 10_000]), words: String::new() },
    ];
    run_kernel(&file("test.elf", &kernel(format, script)), "words for it", modules)
}

fn word(said: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(said[4 * index..][..4].try_into().unwrap())
}

/// Everything that a PVH kernel is given.
fn pvh_kernel(format: Format) {
    let mut script = vec![Step::Cr0, Step::ReloadSegments, Step::Start, Step::Bytes(4)];
    script.extend(follow(pvh::CMDLINE));
    script.push(Step::Text);
    script.extend(follow(pvh::MODULES));
    script.extend([Step::Follow, Step::Bytes(12)]);
    script.extend(follow(pvh::MODULES));
    script.extend([Step::Add(16), Step::Follow, Step::Text]);
    script.extend(follow(pvh::MODULES));
    script.extend([Step::Add(32), Step::Follow, Step::Add(9_999), Step::Bytes(1)]);
    script.extend(follow(pvh::RSDP));
    script.push(Step::Bytes(8));
    script.extend(follow(pvh::MEMORY_MAP));
    script.extend([Step::Add(48), Step::Bytes(24), exit(5)]);
    let (said, stop) = run(format, &script);
    // Protected mode without paging; ET is always 1.
    assert_eq!((word(&said, 0), word(&said, 1)), (0x11, 0x336E_C578));
    let texts = b"words for it\0first moduleits words\0\x5ARSD PTR ";
    let (texts_said, map) = said[8..].split_at(texts.len());
    assert_eq!(texts_said, texts, "{:?}", String::from_utf8_lossy(texts_said));
    let mut want = vec![];
    want.extend(0x10_0000u64.to_le_bytes());
    want.extend((63u64 << 20).to_le_bytes());
    want.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(map, want);
    assert_eq!(stop, Stop::Exit(11));
}

/// Everything that a multiboot kernel is given.
fn multiboot_kernel(format: Format) {
    let mut script = vec![Step::Eax, Step::Cr0, Step::ReloadSegments, Step::Start, Step::Bytes(12)];
    script.extend(follow(multiboot::CMDLINE));
    script.push(Step::Text);
    script.extend(follow(multiboot::MODULES));
    script.extend([Step::Follow, Step::Bytes(12)]);
    script.extend(follow(multiboot::MODULES));
    script.extend([Step::Add(8), Step::Follow, Step::Text]);
    script.extend(follow(multiboot::MODULES));
    script.extend([Step::Add(16), Step::Follow, Step::Add(9_999), Step::Bytes(1)]);
    script.extend(follow(multiboot::MEMORY_MAP));
    script.extend([Step::Add(48), Step::Bytes(24), exit(0)]);
    let (said, stop) = run(format, &script);
    assert_eq!((word(&said, 0), word(&said, 1)), (0x2BAD_B002, 0x11));
    assert_eq!((word(&said, 2), word(&said, 3), word(&said, 4)), (0x24D, 639, 63 << 10));
    let texts = b"test.elf words for it\0first moduleone its words\0\x5A";
    let (texts_said, map) = said[20..].split_at(texts.len());
    assert_eq!(texts_said, texts, "{:?}", String::from_utf8_lossy(texts_said));
    let mut want = 20u32.to_le_bytes().to_vec();
    want.extend(0x10_0000u64.to_le_bytes());
    want.extend((63u64 << 20).to_le_bytes());
    want.extend([1, 0, 0, 0]);
    assert_eq!(map, want);
    assert_eq!(stop, Stop::Exit(1));
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("kernel_pvh_64_bit", || pvh_kernel(Format::Pvh64)),
        trial("kernel_pvh_32_bit", || pvh_kernel(Format::Pvh32)),
        trial("kernel_multiboot_32_bit", || multiboot_kernel(Format::Multiboot32)),
        trial("kernel_multiboot_64_bit", || multiboot_kernel(Format::Multiboot64)),
        trial("kernel_multiboot_by_its_addresses", || multiboot_kernel(Format::MultibootFlat)),
        trial("kernel_debug_exit_of_every_width", debug_exit),
        trial("kernel_other_ends", other_ends),
        trial("kernel_finds_a_pc_without_pci", pc_without_pci),
        trial("kernel_memory_after_its_file_is_zero", || {
            let length = kernel(Format::MultibootFlat, &[Step::At(0), Step::Bytes(64), exit(1)]).len() as u32;
            let (said, _) =
                run(Format::MultibootFlat, &[Step::At(LOADED + length), Step::Bytes(64), exit(1)]);
            assert_eq!(said, [0; 64]);
        }),
    ]
}

fn debug_exit() {
    for (width, code, status) in [(1, 0x21, 0x43), (2, 0x180, 1), (4, 0xFFFF_FF00, 1), (4, 16, 33)] {
        let (_, stop) = run(Format::Pvh32, &[Step::Out(0xF4, width, code)]);
        assert_eq!(stop, Stop::Exit(status), "{code:#x}, {width} bytes wide");
    }
}

fn other_ends() {
    assert_eq!(run(Format::Pvh64, &[Step::Out(0x600, 1, 0x34)]).1, Stop::PowerOff);
    assert_eq!(run(Format::Pvh64, &[Step::Out(0xCF9, 1, 6)]).1, Stop::Reset);
    assert_eq!(run(Format::Multiboot32, &[Step::Die]).1, Stop::Reset);
}

fn pc_without_pci() {
    let (said, _) = run(
        Format::Multiboot32,
        &[
            Step::Out(0xCF8, 4, 0x8000_0000),
            Step::In(0xCFC, 4),
            Step::In(0xCFE, 2),
            // The number of vCPUs in QEMU's firmware configuration.
            Step::Out(0x510, 2, 5),
            Step::In(0x511, 1),
            // The timer: channel 0 in mode 2 with a count of 0x1234, then its latched status.
            Step::Out(0x43, 1, 0x34),
            Step::Out(0x40, 1, 0x34),
            Step::Out(0x40, 1, 0x12),
            Step::Out(0x43, 1, 0xE2),
            Step::In(0x40, 1),
            // The real-time clock is not updating, the keyboard controller has room and no key.
            Step::Out(0x70, 1, 0x0A),
            Step::In(0x71, 1),
            Step::In(0x64, 1),
            // The first interrupt controller's mask, written and read.
            Step::Out(0x21, 1, 0xFE),
            Step::In(0x21, 1),
            // The RSDP by a look into the BIOS area, for kernels that get no address.
            Step::At(0xE_0000),
            Step::Bytes(8),
            exit(1),
        ],
    );
    assert_eq!((word(&said, 0), word(&said, 1), word(&said, 2)), (u32::MAX, 0xFFFF, 1));
    // Mode 2, both bytes, binary; the bits above are the output's and the count's state.
    assert_eq!(word(&said, 3) & 0x3F, 0x34);
    assert_eq!((word(&said, 4), word(&said, 5), word(&said, 6)), (0, 0, 0xFE));
    assert_eq!(&said[28..], b"RSD PTR ");
}

/// A kernel's file for the command line.
pub(crate) fn write(path: &Path, script: &[Step]) {
    std::fs::write(path, kernel(Format::Multiboot32, script)).unwrap();
}
