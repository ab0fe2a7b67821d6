//! The MSRs that exit to the VMM.
//!
//! KVM answers the registers of performance counters itself, silently, even with its vPMU switched off; the filter
//! wins over that (FACTS section 2). So both doors are behind the filter: the perfctr door's two MSRs, and
//! every PMU register of any family, which get #GP while no MSR door is there.

use kvm_bindings::{KVM_PMU_CAP_DISABLE, kvm_enable_cap};
use kvm_ioctls::{Cap, MsrExitReason, MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VmFd};
use vpmu::DOOR_MSRS;

use super::Error;

/// First register and number of registers. Sources: Intel SDM volume 4; AMD APM volume 2 appendix A.
/// P5's CESR and counters (0x11 to 0x13) are left out: KVM's first clock interface has two of these numbers.
const RANGES: [(u32, u32); 9] = [
    (DOOR_MSRS.start, DOOR_MSRS.end - DOOR_MSRS.start),
    // Intel counters, and their full-width aliases.
    (0xC1, 8),
    (0x4C1, 8),
    // Intel event selects.
    (0x186, 8),
    // P4: counters, CCCRs; and fixed counters of later processors in the same numbers.
    (0x300, 0x72),
    // Fixed counter control, GLOBAL_STATUS, GLOBAL_CTRL, GLOBAL_OVF_CTRL, GLOBAL_STATUS_SET.
    (0x38D, 5),
    // K7: four event selects, four counters.
    (0xC001_0000, 8),
    // AMD core extension: six pairs.
    (0xC001_0200, 12),
    // PerfMonV2: GLOBAL_STATUS, GLOBAL_CTL, GLOBAL_STATUS_CLR, GLOBAL_STATUS_SET.
    (0xC000_0300, 4),
];

/// Switch KVM's own vPMU off, where KVM can. Before the first vCPU.
pub(crate) fn switch_vpmu_off(vm: &VmFd) -> Result<(), Error> {
    if vm.check_extension_raw(u64::from(kvm_bindings::KVM_CAP_PMU_CAPABILITY)) > 0 {
        let cap = kvm_enable_cap {
            cap: kvm_bindings::KVM_CAP_PMU_CAPABILITY,
            args: [u64::from(KVM_PMU_CAP_DISABLE), 0, 0, 0],
            ..Default::default()
        };
        vm.enable_cap(&cap).map_err(|e| Error::Kvm("ENABLE_CAP(PMU_CAPABILITY)", e))?;
    }
    Ok(())
}

/// Switch KVM's own vPMU off, where KVM can, and have the registers above exit. Before the first vCPU.
pub(super) fn install(vm: &VmFd) -> Result<(), Error> {
    switch_vpmu_off(vm)?;
    for cap in [Cap::X86UserSpaceMsr, Cap::X86MsrFilter] {
        if !vm.check_extension(cap) {
            return Err(Error::NoMsrFilter);
        }
    }
    // Unknown registers stay KVM's business: it raises #GP without an exit to us.
    let cap = kvm_enable_cap {
        cap: Cap::X86UserSpaceMsr as u32,
        args: [u64::from(MsrExitReason::Filter.bits()), 0, 0, 0],
        ..Default::default()
    };
    vm.enable_cap(&cap).map_err(|e| Error::Kvm("ENABLE_CAP(X86_USER_SPACE_MSR)", e))?;
    // A clear bit denies, and what is denied exits.
    let bitmap = [0u8; 16];
    let ranges = RANGES.map(|(base, msr_count)| MsrFilterRange {
        flags: MsrFilterRangeFlags::READ | MsrFilterRangeFlags::WRITE,
        base,
        msr_count,
        bitmap: &bitmap[..(msr_count as usize).div_ceil(8)],
    });
    vm.set_msr_filter(MsrFilterDefaultAction::ALLOW, &ranges).map_err(|e| Error::Kvm("X86_SET_MSR_FILTER", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_fit_the_filter_and_do_not_overlap() {
        assert!(RANGES.len() <= 16);
        let mut sorted = RANGES;
        sorted.sort();
        for pair in sorted.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?}");
        }
        assert!(RANGES.iter().all(|(_, count)| count.div_ceil(8) <= 16));
    }
}
