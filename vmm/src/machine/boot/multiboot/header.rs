//! The header by which a file says that it is a multiboot image (Multiboot 0.6.96, section 3.1).

use super::super::image::{HEAD, u32_at};

const MAGIC: u32 = 0x1BAD_B002;
/// Of multiboot 2: recognised only for the message that refuses it.
const MAGIC_2: u32 = 0xE852_50D6;
/// Flags: modules on page boundaries, memory information (both always given), a video mode (there is none, and the
/// information says so).
const KNOWN_REQUIREMENTS: u32 = 0b111;
/// A loader must refuse an image that requires what it does not know; these bits do.
const REQUIREMENTS: u32 = 0xFFFF;
/// The header has addresses, which count more than those of the file's own format.
const HAS_ADDRESSES: u32 = 1 << 16;

/// A multiboot header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Header {
    /// Where it lies in the file.
    offset: u32,
    flags: u32,
    addresses: Option<Addresses>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Addresses {
    header: u32,
    load: u32,
    /// 0 for the end of the file.
    load_end: u32,
    /// 0 for no more than the file has.
    bss_end: u32,
    entry: u32,
}

/// What to do with a file whose header has addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The part of the file.
    pub(super) offset: u64,
    pub(super) file_size: u64,
    /// Where it goes, and how much it takes there.
    pub(super) address: u64,
    pub(super) memory_size: u64,
    pub(super) entry: u32,
}

/// The header of a file that begins with `head`: the first whose sum is right.
pub(in super::super) fn find(head: &[u8]) -> Option<Header> {
    let head = &head[..head.len().min(HEAD)];
    (0..head.len().saturating_sub(11)).step_by(4).find_map(|at| {
        let (magic, flags, checksum) = (u32_at(head, at), u32_at(head, at + 4), u32_at(head, at + 8));
        if magic != MAGIC || magic.wrapping_add(flags).wrapping_add(checksum) != 0 {
            return None;
        }
        let addresses = if flags & HAS_ADDRESSES == 0 {
            None
        } else {
            let fields = head.get(at + 12..at + 32)?;
            Some(Addresses {
                header: u32_at(fields, 0),
                load: u32_at(fields, 4),
                load_end: u32_at(fields, 8),
                bss_end: u32_at(fields, 12),
                entry: u32_at(fields, 16),
            })
        };
        Some(Header { offset: at as u32, flags, addresses })
    })
}

/// Whether a file is an image of multiboot 2, by its magic and the sum of its four fields.
pub(in super::super) fn is_multiboot_2(head: &[u8]) -> bool {
    (0..head.len().saturating_sub(15)).step_by(8).any(|at| {
        let fields = [0, 4, 8, 12].map(|field| u32_at(head, at + field));
        fields[0] == MAGIC_2 && fields.iter().fold(0u32, |sum, field| sum.wrapping_add(*field)) == 0
    })
}

impl Header {
    /// What the addresses ask for, if there are any, of a file of this length.
    pub(super) fn plan(&self, length: u64) -> Result<Option<Plan>, String> {
        let unknown = self.flags & REQUIREMENTS & !KNOWN_REQUIREMENTS;
        if unknown != 0 {
            return Err(format!(
                "its multiboot header requires what perfvisor does not know (flags {unknown:#x})"
            ));
        }
        let Some(addresses) = self.addresses else { return Ok(None) };
        let bad = |what: &str| format!("the addresses in its multiboot header make no sense: {what}");
        let before = addresses
            .header
            .checked_sub(addresses.load)
            .ok_or_else(|| bad("the header lies before what is loaded"))?;
        let offset = self
            .offset
            .checked_sub(before)
            .ok_or_else(|| bad("loading begins before the beginning of the file"))?;
        let there = length.saturating_sub(offset.into());
        let file_size = match addresses.load_end {
            0 => there,
            end => {
                end.checked_sub(addresses.load).ok_or_else(|| bad("the end lies before the start"))?.into()
            }
        };
        if file_size > there {
            return Err(format!("truncated: {there} bytes of the {file_size} that its header states"));
        }
        let memory_size = match addresses.bss_end {
            0 => file_size,
            end => u64::from(end)
                .checked_sub(addresses.load.into())
                .filter(|size| *size >= file_size)
                .ok_or_else(|| bad("the uninitialised data ends within the initialised"))?,
        };
        let entry_at = addresses.entry.checked_sub(addresses.load);
        if entry_at.is_none_or(|at| u64::from(at) >= memory_size) {
            return Err(bad("the entry point is not in what is loaded"));
        }
        let (address, entry) = (addresses.load.into(), addresses.entry);
        Ok(Some(Plan { offset: offset.into(), file_size, address, memory_size, entry }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `words` at `offset` of a file of zeroes.
    fn file(offset: usize, words: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; offset];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.resize(bytes.len().next_multiple_of(0x1000), 0);
        bytes
    }

    fn header(flags: u32) -> [u32; 3] {
        [MAGIC, flags, 0u32.wrapping_sub(MAGIC).wrapping_sub(flags)]
    }

    fn with_addresses(addresses: [u32; 5]) -> Result<Option<Plan>, String> {
        let bytes = file(0x40, &[&header(HAS_ADDRESSES)[..], &addresses].concat());
        find(&bytes).unwrap().plan(bytes.len() as u64)
    }

    #[test]
    fn the_header_is_found_where_it_may_be() {
        for at in [0, 4, 0x100, HEAD - 12] {
            assert_eq!(find(&file(at, &header(3))).unwrap().offset as usize, at);
        }
        for at in [2, HEAD - 8, HEAD] {
            assert_eq!(find(&file(at, &header(3))), None, "at {at}");
        }
        assert_eq!(find(&file(0, &[MAGIC, 0, 0])), None, "a wrong sum");
        // Addresses that do not fit into the part of the file that is searched.
        assert_eq!(find(&file(HEAD - 12, &header(HAS_ADDRESSES))), None);
        assert!(is_multiboot_2(&file(8, &[MAGIC_2, 0, 16, 0u32.wrapping_sub(MAGIC_2).wrapping_sub(16)])));
    }

    #[test]
    fn what_is_required_and_unknown_is_refused() {
        let plan = |flags| find(&file(0, &header(flags))).unwrap().plan(0x1000);
        assert_eq!(plan(7), Ok(None));
        assert!(plan(8).unwrap_err().contains("requires"));
        // Not requirements: bits that say what the header has.
        assert_eq!(plan(1 << 17), Ok(None));
    }

    #[test]
    fn addresses_are_followed_and_checked() {
        // The header at 0x40 of the file goes to 0x100040, so the file's start to 0x100000.
        let plan = with_addresses([0x10_0040, 0x10_0000, 0, 0x10_8000, 0x10_0060]).unwrap().unwrap();
        let want =
            Plan { offset: 0, file_size: 0x1000, address: 0x10_0000, memory_size: 0x8000, entry: 0x10_0060 };
        assert_eq!(plan, want);
        let plan = with_addresses([0x10_0040, 0x10_0010, 0x10_0110, 0, 0x10_0060]).unwrap().unwrap();
        assert_eq!((plan.offset, plan.file_size, plan.memory_size), (0x10, 0x100, 0x100));
        for bad in [
            [0x10_0040, 0x10_0041, 0, 0, 0x10_0060],
            [0x10_0040, 0x0F_F000, 0, 0, 0x10_0060],
            [0x10_0040, 0x10_0000, 0x0F_0000, 0, 0x10_0060],
            [0x10_0040, 0x10_0000, 0x10_2000, 0, 0x10_0060],
            [0x10_0040, 0x10_0000, 0x10_0100, 0x10_00FF, 0x10_0060],
            [0x10_0040, 0x10_0000, 0x10_0100, 0, 0x10_0100],
            [0x10_0040, 0x10_0000, 0x10_0100, 0, 0x0F_FFFF],
            [u32::MAX, 0, u32::MAX, u32::MAX, 0],
        ] {
            assert!(with_addresses(bad).is_err(), "{bad:x?}");
        }
    }

    proptest! {
        #[test]
        fn no_header_asks_for_what_the_file_has_not(
            at in 0usize..0x800, flags in any::<u32>(), base in any::<u32>(), fields in any::<[u16; 5]>(),
        ) {
            let addresses = fields.map(|field| base.wrapping_add(field.into()));
            let bytes = file(at * 4, &[&header(flags | HAS_ADDRESSES)[..], &addresses].concat());
            let length = bytes.len() as u64;
            if let Some(Ok(Some(plan))) = find(&bytes).map(|header| header.plan(length)) {
                prop_assert!(plan.offset + plan.file_size <= length);
                prop_assert!(plan.file_size <= plan.memory_size);
                prop_assert!(u64::from(plan.entry) - plan.address < plan.memory_size);
            }
        }

        #[test]
        fn garbage_is_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), length in any::<u64>()) {
            is_multiboot_2(&bytes);
            if let Some(header) = find(&bytes) {
                let _ = header.plan(length);
            }
        }
    }
}
