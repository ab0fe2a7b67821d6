//! The MSRs that exit to the VMM.
//!
//! KVM answers the registers of performance counters itself, silently, even with its vPMU switched off; the filter
//! wins over that. So both interfaces are behind the filter: the paravirtual interface's MSRs, and every PMU register
//! of any family, which faults where the guest's PMU has none.

use kvm_bindings::{KVM_PMU_CAP_DISABLE, kvm_enable_cap};
use kvm_ioctls::{Cap, MsrExitReason, MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VmFd};
use vpmu::{PV_MSRS, PmuConfig, Registers};

use super::error::Error;

/// First register and number of registers.
type Span = (u32, u32);

/// The paravirtual interface, and the registers of every family. Sources: Intel SDM volume 4; AMD APM volume 2 appendix
/// A.
const RANGES: [Span; 8] = [
    (PV_MSRS.start, PV_MSRS.end - PV_MSRS.start),
    // Intel: counters, their full-width numbers, event selects.
    (0xC1, 8),
    (0x4C1, 8),
    (0x186, 8),
    // P4: counters, CCCRs, ESCRs, replay tagging. In between fixed counters (309 on), IA32_PERF_CAPABILITIES (345),
    // fixed counter control and the global registers (38D to 392) of later processors.
    (0x300, 0xF3),
    // K7: four event selects, four counters.
    (0xC001_0000, 8),
    // AMD core extension: six pairs.
    (0xC001_0200, 12),
    // PerfMonV2: GLOBAL_STATUS, GLOBAL_CTL, GLOBAL_STATUS_CLR, GLOBAL_STATUS_SET.
    (0xC000_0300, 4),
];
/// Bytes of the longest range's bitmap; KVM takes 0x600.
const BITMAP: usize = 32;
/// P5's CESR and counters. Two of these numbers are KVM's first clock interface for all other guests.
const P5: Span = (0x11, 3);

/// What exits for a guest with this PMU.
fn ranges(pmu: Option<&PmuConfig>) -> Vec<Span> {
    let p5 =
        pmu.is_some_and(|pmu| pmu.pmu_registers && matches!(pmu.model.facts().registers, Registers::P5(_)));
    RANGES.into_iter().chain(p5.then_some(P5)).collect()
}

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
pub(super) fn install(vm: &VmFd, pmu: Option<&PmuConfig>) -> Result<(), Error> {
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
    let bitmap = [0u8; BITMAP];
    let range = |(base, msr_count): Span| MsrFilterRange {
        flags: MsrFilterRangeFlags::READ | MsrFilterRangeFlags::WRITE,
        base,
        msr_count,
        bitmap: &bitmap[..(msr_count as usize).div_ceil(8)],
    };
    let ranges: Vec<_> = ranges(pmu).into_iter().map(range).collect();
    vm.set_msr_filter(MsrFilterDefaultAction::ALLOW, &ranges).map_err(|e| Error::Kvm("X86_SET_MSR_FILTER", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vpmu::{HostFamily, Model};

    fn config(model: Model) -> PmuConfig {
        PmuConfig {
            model,
            host: HostFamily::K8.processor(),
            core_khz: 1,
            pmu_registers: true,
            rdpmc_faults: true,
        }
    }

    #[test]
    fn ranges_fit_the_filter_and_do_not_overlap() {
        let mut sorted = ranges(Some(&config(Model::P5)));
        assert!(sorted.len() <= 16);
        sorted.sort();
        for pair in sorted.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?}");
        }
        assert!(sorted.iter().all(|(_, count)| (*count as usize).div_ceil(8) <= BITMAP));
    }

    /// No register of any family is left to KVM.
    #[test]
    fn every_register_exits() {
        for model in Model::ALL {
            let ranges = ranges(Some(&config(model)));
            let exits = |msr: u32| ranges.iter().any(|(first, count)| (*first..first + count).contains(&msr));
            for msr in registers(model) {
                assert!(exits(msr), "{model}: {msr:#x}");
            }
            assert_eq!(exits(0x11), matches!(model.facts().registers, Registers::P5(_)), "{model}");
        }
        assert!(!ranges(None).contains(&P5));
        assert!(!ranges(Some(&PmuConfig { pmu_registers: false, ..config(Model::P5) })).contains(&P5));
    }

    fn registers(model: Model) -> Vec<u32> {
        match model.facts().registers {
            Registers::None => Vec::new(),
            Registers::P5(p5) => [p5.cesr].into_iter().chain(p5.counter.span()).collect(),
            Registers::P6(p6) => {
                let alias = p6.alias.map(|(evntsel, counter)| [evntsel, counter]);
                let blocks = [p6.evntsel, p6.counter].into_iter().chain(p6.full_width);
                let blocks =
                    blocks.chain(alias.into_iter().flatten()).chain(p6.fixed.map(|fixed| fixed.counter));
                let global =
                    p6.global.map(|g| [Some(g.control), Some(g.status), Some(g.clear), g.set, g.in_use]);
                let single = [p6.fixed.map(|fixed| fixed.control), p6.capabilities.map(|_| 0x345), p6.tsc];
                let single = single.into_iter().chain(global.into_iter().flatten()).flatten();
                blocks
                    .flat_map(|block| block.span())
                    .chain(single)
                    .chain(p6.constant.iter().map(|c| c.0))
                    .collect()
            }
            Registers::P4(p4) => {
                let blocks = p4.counter.span().chain(p4.cccr.span());
                blocks.chain(p4.escrs.iter().copied()).chain(p4.replay.map(|(msr, _)| msr)).collect()
            }
        }
    }
}
