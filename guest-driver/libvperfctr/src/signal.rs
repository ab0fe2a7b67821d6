//! What comes with an overflow signal.

#![allow(unsafe_code)] // The payload lies in a part of siginfo_t that the C library keeps to itself.

/// `si_code` of an overflow signal, `SI_PMC_OVF` of perfctr's user-space header.
pub const SI_PMC_OVF: i32 = b'P' as i32;

/// Where `_sifields` begins in the x86-64 siginfo_t: after three ints, on a boundary of 8 bytes.
const SIFIELDS: usize = 16;

/// The counters that have overflowed, bit i for virtual index i (`si_pmc_ovf_mask`). `None`: the signal came from
/// something else. To be called in the handler; safe there.
pub fn overflow_mask(info: &libc::siginfo_t) -> Option<u32> {
    if info.si_code != SI_PMC_OVF {
        return None;
    }
    // SAFETY: inside the structure's 128 bytes, aligned, and any bits are a number.
    Some(unsafe { std::ptr::from_ref(info).cast::<u8>().add(SIFIELDS).cast::<u32>().read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_the_first_word_of_the_payload() {
        let mut words = [0u32; 32];
        words[0] = libc::SIGUSR1 as u32;
        words[2] = SI_PMC_OVF as u32;
        words[4] = 0b101;
        // SAFETY: 128 bytes of plain data for 128 bytes of plain data.
        let mut info: libc::siginfo_t = unsafe { std::mem::transmute(words) };
        assert_eq!(overflow_mask(&info), Some(0b101));
        info.si_code = libc::SI_USER;
        assert_eq!(overflow_mask(&info), None);
    }
}
