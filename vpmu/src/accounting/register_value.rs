//! What a counter register holds: a number of so many bits that wraps.

/// The contents of a counter register, 1 to 64 bits wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterValue {
    bits: u64,
    width: u32,
}

impl RegisterValue {
    /// The low `width` bits of `value`.
    pub(crate) const fn new(value: u64, width: u32) -> Self {
        Self { bits: value & mask(width), width }
    }

    /// What a register holds after a P6's write of `value`: bit 31 fills the rest (low-level-x86.txt, "Intel P6").
    pub(crate) const fn sign_extended(value: i32, width: u32) -> Self {
        Self::new(value as i64 as u64, width)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.bits
    }

    /// Its contents `count` events later.
    pub(crate) const fn after(self, count: u64) -> Self {
        Self::new(self.bits.wrapping_add(count), self.width)
    }

    /// Events until it wraps to 0: 1 to 2^width. For 64 bits and 0 that is 2^64 - 1, which no counter sees.
    pub(crate) const fn until_overflow(self) -> u64 {
        mask(self.width).wrapping_sub(self.bits).saturating_add(1)
    }

    /// Whether it wraps within `count` events.
    pub(crate) const fn overflows_after(self, count: u64) -> bool {
        count >= self.until_overflow()
    }

    /// The count of a host counter at which it wraps, if that counter shows `now`.
    pub(crate) const fn overflow_at(self, now: u64) -> u64 {
        now.saturating_add(self.until_overflow())
    }
}

const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_its_width() {
        for width in [1, 32, 40, 48, 63, 64] {
            let last = RegisterValue::new(u64::MAX, width);
            assert_eq!((last.until_overflow(), last.after(1).bits()), (1, 0), "{width}");
            assert!(last.overflows_after(1) && !last.overflows_after(0));
            assert_eq!(last.overflow_at(10), 11);
            assert_eq!(last.overflow_at(u64::MAX), u64::MAX);
        }
        assert_eq!(RegisterValue::new(0, 40).until_overflow(), 1 << 40);
    }

    #[test]
    fn a_p6_write_extends_bit_31() {
        assert_eq!(RegisterValue::sign_extended(-5, 40).bits(), 0xFF_FFFF_FFFB);
        assert_eq!(RegisterValue::sign_extended(-5, 40).until_overflow(), 5);
        assert_eq!(RegisterValue::sign_extended(-5, 32).until_overflow(), 5);
        assert_eq!(RegisterValue::sign_extended(5, 48).until_overflow(), (1 << 48) - 5);
    }
}
