//! Whether KVM's own vPMU counts on this host: a throw-away VM that counts its instructions and reads them by RDPMC.
//!
//! Its registers answer whether or not they count: where perf has no counter left for KVM, they stand still, and nothing
//! says so.

use kvm_ioctls::Kvm;

use super::pmu_holders;
use super::tiny_vm::{CODE_AT, Error, TinyVm};
use crate::machine::cpuid::{self, Shown};
use crate::vcpu::kvm_pmu::KvmPmu;

/// mov cx, 1000; loop to itself; xor ecx, ecx; rdpmc; hlt.
const CODE: [u8; 11] = [0xB9, 0xE8, 0x03, 0xE2, 0xFE, 0x66, 0x31, 0xC9, 0x0F, 0x33, 0xF4];
/// Of the loop alone.
const INSTRUCTIONS: u64 = 1000;
/// Behind it the handler of #GP: inc bx; hlt.
const HANDLER: [u8; 2] = [0x43, 0xF4];
const GP: u8 = 13;

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// There is none.
    #[error(
        "KVM has no vPMU here; the host needs a PMU, and the module kvm its parameter enable_pmu=1 \
         (/sys/module/kvm/parameters/enable_pmu)"
    )]
    Absent,
    /// Its registers are there and do nothing.
    #[error("the counters of KVM's vPMU stand still, because perf has none left on this host: {0}")]
    Still(String),
    /// The guest's RDPMC faults.
    #[error("RDPMC faults under KVM's vPMU; use another source")]
    RdpmcFaults,
    /// The host's counters belong to the kernel module.
    #[error(
        "perfctr_host has the host's counters for other machines: use --source module, or end those machines"
    )]
    Taken,
    /// The probe failed.
    #[error("cannot find out whether KVM's vPMU counts ({0})")]
    Probe(#[from] Error),
}

/// Try it, in a VM with the processor that a machine's vCPUs have.
pub fn probe(kvm: &Kvm) -> Result<KvmPmu, Unusable> {
    if pmu_holders::module_is_used() {
        return Err(Unusable::Taken);
    }
    let supported = cpuid::supported(kvm).map_err(Error::from)?;
    let leaves = cpuid::for_vcpu(&supported, 0, 1, Shown::Kvm).map_err(Error::from)?;
    let pmu = KvmPmu::described(&leaves).ok_or(Unusable::Absent)?;

    let code = [&CODE[..], &HANDLER].concat();
    let handler = CODE_AT + CODE.len() as u16;
    let mut vm = TinyVm::new(kvm, &code, &[(GP, handler)], |_| Ok(()))?;
    vm.vcpu.set_cpuid2(&leaves).map_err(|e| Error::Kvm("SET_CPUID2", e))?;
    if !pmu.count_instructions(&vm.vcpu) {
        return Err(Unusable::Absent);
    }
    vm.rewind()?;
    vm.run()?;
    let regs = vm.vcpu.get_regs().map_err(|e| Error::Kvm("GET_REGS", e))?;
    let counted = (regs.rdx & 0xFFFF_FFFF) << 32 | regs.rax & 0xFFFF_FFFF;
    match (regs.rbx, counted) {
        (0, counted) if counted >= INSTRUCTIONS => Ok(pmu),
        (0, _) => Err(Unusable::Still(pmu_holders::of_perf())),
        _ => Err(Unusable::RdpmcFaults),
    }
}
