//! ELF files as they should be, as they should not be, and as nobody would think of.

use std::io::Write;

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::*;

/// One program header and what it covers.
#[derive(Clone)]
pub(in super::super) struct Part {
    pub(in super::super) kind: u32,
    pub(in super::super) virtual_address: u64,
    pub(in super::super) physical_address: u64,
    pub(in super::super) bytes: Vec<u8>,
    pub(in super::super) memory_size: u64,
    pub(in super::super) align: u64,
}

impl Part {
    pub(in super::super) fn load(address: u64, bytes: &[u8]) -> Self {
        Self {
            kind: PT_LOAD,
            virtual_address: address,
            physical_address: address,
            bytes: bytes.to_vec(),
            memory_size: bytes.len() as u64,
            align: 0x1000,
        }
    }

    pub(in super::super) fn note(notes: &[u8]) -> Self {
        Self { kind: PT_NOTE, align: 4, ..Self::load(0, notes) }
    }
}

/// The note that makes a kernel one of PVH.
pub(in super::super) fn pvh_note(entry: u32) -> Vec<u8> {
    note(b"Xen\0", 18, &entry.to_le_bytes(), 4)
}

fn note(name: &[u8], kind: u32, contents: &[u8], align: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [name.len() as u32, contents.len() as u32, kind].iter().flat_map(|word| word.to_le_bytes()).collect();
    for part in [name, contents] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(align), 0);
    }
    bytes
}

/// An ELF file of either class.
pub(in super::super) fn file(wide: bool, entry: u64, parts: &[Part]) -> Vec<u8> {
    let mut out = vec![0x7F, b'E', b'L', b'F', if wide { 2 } else { 1 }, 1, 1];
    out.resize(16, 0);
    let field = |out: &mut Vec<u8>, value: u64| {
        out.extend(&value.to_le_bytes()[..if wide { 8 } else { 4 }]);
    };
    let (header, each) = if wide { (64, 56) } else { (52, 32) };
    out.extend(2u16.to_le_bytes());
    out.extend(if wide { MACHINE_X86_64 } else { MACHINE_386 }.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    field(&mut out, entry);
    field(&mut out, header);
    field(&mut out, 0);
    out.extend(0u32.to_le_bytes());
    for half in [header as u16, each, parts.len() as u16, 0, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    let mut offset = header + u64::from(each) * parts.len() as u64;
    for part in parts {
        let flags = 7u32.to_le_bytes();
        out.extend(part.kind.to_le_bytes());
        if wide {
            out.extend(flags);
        }
        let fields =
            [offset, part.virtual_address, part.physical_address, part.bytes.len() as u64, part.memory_size];
        fields.into_iter().for_each(|value| field(&mut out, value));
        if !wide {
            out.extend(flags);
        }
        field(&mut out, part.align);
        offset += part.bytes.len() as u64;
    }
    parts.iter().for_each(|part| out.extend(&part.bytes));
    out
}

fn image(bytes: &[u8]) -> Image {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Image::open(file.path()).unwrap()
}

/// Load a file into 4 MiB; the entry point.
fn load(bytes: &[u8]) -> Result<(GuestMemoryMmap, u32), String> {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 4 << 20)]).unwrap();
    let mut image = image(bytes);
    let elf = Elf::read(&image)?;
    elf.load(&mut image, &mut GuestAllocator::new(&memory))?;
    Ok((memory, elf.entry()?))
}

#[test]
fn segments_go_to_their_physical_addresses_and_the_entry_point_with_them() {
    for wide in [false, true] {
        let mut code = Part::load(0x10_0000, b"code");
        code.virtual_address = 0x8010_0000;
        code.memory_size = 0x1000;
        let data = Part::load(0x8000, b"data");
        let (memory, entry) = load(&file(wide, 0x8010_0002, &[code, data])).unwrap();
        assert_eq!(entry, 0x10_0002);
        let read = |at| memory.read_obj::<[u8; 4]>(GuestAddress(at)).unwrap();
        assert_eq!((read(0x10_0000), read(0x8000)), (*b"code", *b"data"));
    }
}

#[test]
fn what_cannot_be_loaded_is_refused_with_the_reason() {
    let refused = |parts: &[Part], entry| load(&file(true, entry, parts)).map(|_| ()).unwrap_err();
    let at = |address| Part::load(address, b"code");
    for address in [0x9_FBFE, 0xA_0000, 0xE_0000, (4 << 20) - 2, 0xFEE0_0000, u64::MAX - 1] {
        let reason = refused(&[at(address)], address);
        assert!(reason.contains(&format!("{address:#x}")), "{reason}");
    }
    assert!(refused(&[at(0x10_0000), at(0x10_0003)], 0x10_0000).contains("another part"));
    assert!(refused(&[at(0x10_0000)], 0x10_0004).contains("entry point"));
    assert!(refused(&[], 0).contains("entry point"));
    let long = Part { memory_size: 3, ..at(0x10_0000) };
    assert!(refused(&[long], 0x10_0000).contains("longer in the file"));

    let whole = file(true, 0x10_0000, &[at(0x10_0000)]);
    for length in [0, 4, 16, 63, 64, 100, whole.len() - 1] {
        assert!(load(&whole[..length]).unwrap_err().contains("truncated"), "{length}");
    }
    for (offset, value, word) in
        [(4, 3, "class"), (5, 2, "processor"), (18, 0xB7, "processor"), (54, 1, "program headers")]
    {
        let mut bytes = whole.clone();
        bytes[offset] = value;
        assert!(load(&bytes).unwrap_err().contains(word), "{offset}");
    }
}

#[test]
fn the_right_note_is_found_among_others() {
    let find = |parts: &[Part]| {
        let image = image(&file(true, 0, parts));
        Elf::read(&image).unwrap().note(&image, b"Xen\0", 18).unwrap()
    };
    let other = note(b"GNU\0", 18, b"other", 4);
    let wanted = note(b"Xen\0", 18, &[1, 2, 3, 4], 4);
    assert_eq!(find(&[Part::note(&[&other[..], &wanted].concat())]), Some(vec![1, 2, 3, 4]));
    assert_eq!(find(&[Part::note(&other), Part::note(&wanted)]), Some(vec![1, 2, 3, 4]));
    assert_eq!(find(&[Part::note(&wanted), Part::note(&other)]), Some(vec![1, 2, 3, 4]));
    assert_eq!(find(&[Part::note(&other)]), None);
    let eight = [note(b"GNU\0", 5, &[0; 4], 8), note(b"Xen\0", 18, &[5; 8], 8)].concat();
    assert_eq!(find(&[Part { align: 8, ..Part::note(&eight) }]), Some(vec![5; 8]));
    // Sizes that lead out of the segment, or around the end of numbers.
    for sizes in [[u32::MAX, u32::MAX], [4, 1000], [1000, 4], [u32::MAX, 0]] {
        let mut bad = wanted.clone();
        sizes.iter().enumerate().for_each(|(i, size)| bad[4 * i..][..4].copy_from_slice(&size.to_le_bytes()));
        assert_eq!(find(&[Part::note(&bad)]), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Any fields of the headers may have any value: an error or a kernel within memory, never a panic.
    #[test]
    fn headers_of_garbage_are_no_panic(
        wide: bool,
        changes in prop::collection::vec((4usize..240, prop_oneof![any::<u8>(), Just(0), Just(0xFF)]), 0..12),
        cut in 0usize..400,
    ) {
        let mut bytes = file(wide, 0x10_0000, &[Part::load(0x10_0000, &[0x90; 64]), Part::note(&pvh_note(0x10_0000))]);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut);
        let image = image(&bytes);
        if let Ok(elf) = Elf::read(&image) {
            let _ = elf.note(&image, b"Xen\0", 18);
        }
        if let Ok((_, entry)) = load(&bytes) {
            prop_assert!(entry < 4 << 20);
        }
    }
}
