//! The MSRs of the paravirtual interface.

use std::ops::Range;

use perfctr_abi::pv::{
    MSR_BASE, MSR_COUNT, MSR_DOORBELL, MSR_PAGE, MSR_RDPMC, MSR_RDPMC_FIXED, MSR_VECTOR, RDPMC_COUNT,
    RDPMC_FIXED_COUNT,
};

/// Those MSRs, all of which must reach [`VirtualPmu`](crate::VirtualPmu).
pub const PV_MSRS: Range<u32> = MSR_BASE..MSR_BASE + MSR_COUNT;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PvMsr {
    Doorbell,
    Page,
    Vector,
    /// Stands for RDPMC of this counter.
    Rdpmc {
        number: u32,
        fixed: bool,
    },
    Reserved,
}

impl PvMsr {
    /// Which one `msr` is; `None`: it is none of them.
    #[inline]
    pub(crate) fn of(msr: u32) -> Option<Self> {
        Some(match msr.wrapping_sub(MSR_BASE) {
            MSR_DOORBELL => Self::Doorbell,
            MSR_PAGE => Self::Page,
            MSR_VECTOR => Self::Vector,
            offset if offset >= MSR_COUNT => return None,
            offset if (MSR_RDPMC..MSR_RDPMC + RDPMC_COUNT).contains(&offset) => {
                Self::Rdpmc { number: offset - MSR_RDPMC, fixed: false }
            }
            offset if (MSR_RDPMC_FIXED..MSR_RDPMC_FIXED + RDPMC_FIXED_COUNT).contains(&offset) => {
                Self::Rdpmc { number: offset - MSR_RDPMC_FIXED, fixed: true }
            }
            _ => Self::Reserved,
        })
    }
}
