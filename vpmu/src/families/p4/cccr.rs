//! Bits of a CCCR.

/// The counter starts when another one of the last group overflows: 12 and 17 after 16, 15 and 16 after 17.
pub(crate) const EXTENDED_CASCADE: u32 = 1 << 11;
/// The counter counts.
pub(crate) const ENABLE: u32 = 1 << 12;
/// ESCR SELECT, three bits from here.
pub(crate) const ESCR_SELECT: u32 = 13;
/// Count while any logical processor is active; required without hyper-threading.
pub(crate) const ACTIVE_THREAD: u32 = 0b11 << 16;
/// Of these: count while exactly one is active.
pub(crate) const ACTIVE_SINGLE: u32 = 0b01 << 16;
/// Compare with the threshold.
pub(crate) const COMPARE: u32 = 1 << 18;
/// Count rising edges of the comparison.
pub(crate) const EDGE: u32 = 1 << 24;
/// Overflow at every increment.
pub(crate) const FORCE_OVF: u32 = 1 << 25;
/// Interrupt at overflow.
pub(crate) const OVF_PMI_T0: u32 = 1 << 26;
/// The same for the other thread.
pub(crate) const OVF_PMI_T1: u32 = 1 << 27;
/// The counter starts when its partner in the other pair of the group overflows.
pub(crate) const CASCADE: u32 = 1 << 30;
/// The counter has overflowed; software clears it.
pub(crate) const OVF: u32 = 1 << 31;
