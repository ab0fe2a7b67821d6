//! What RDPMC does in a guest of this host: a throw-away VM with one RDPMC in ring 0.
//!
//! RDPMC never exits to the VMM (no KVM offers that), so a guest that reads counters by it gets what KVM gives. With KVM's own
//! vPMU off, recent kernels raise #GP, which a guest driver can serve. Older ones, 6.1 on AMD among them, let it read 0 without
//! a fault: a plausible wrong number, and nothing announces it.

use kvm_bindings::{Msrs, kvm_msr_entry};
use kvm_ioctls::Kvm;

pub use super::tiny_vm::Error;
use super::tiny_vm::{CODE_AT, TinyVm};
use crate::machine;

/// What the instruction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rdpmc {
    /// It raised #GP.
    Faults,
    /// It read 0.
    SilentZero,
    /// It read something: a counter of KVM's own.
    Counts(u64),
}

/// xor ecx, ecx; rdpmc; hlt.
const CODE: [u8; 6] = [0x66, 0x31, 0xC9, 0x0F, 0x33, 0xF4];
/// Behind it the handler of #GP: inc bx; hlt.
const HANDLER: [u8; 2] = [0x43, 0xF4];
const GP: u8 = 13;
/// Counter 0 of Intel's and of AMD's processors. Filled beforehand, so that a counter that is there does not read 0.
const COUNTERS: [u32; 2] = [0xC1, 0xC001_0004];
const FILL: u64 = 0x5A5A;

/// Try it, in a VM with the processor and the vPMU that a machine's vCPUs have.
pub fn probe(kvm: &Kvm) -> Result<Rdpmc, Error> {
    let code = [&CODE[..], &HANDLER].concat();
    let handler = CODE_AT + CODE.len() as u16;
    let mut vm = TinyVm::new(kvm, &code, &[(GP, handler)], |vm| Ok(machine::filter::switch_vpmu_off(vm)?))?;
    let supported = machine::cpuid::supported(kvm)?;
    let leaves = machine::cpuid::for_vcpu(&supported, 0, 1, machine::cpuid::Shown::None)?;
    vm.vcpu.set_cpuid2(&leaves).map_err(|e| Error::Kvm("SET_CPUID2", e))?;
    for index in COUNTERS {
        let entry = kvm_msr_entry { index, data: FILL, ..Default::default() };
        if let Ok(msrs) = Msrs::from_entries(&[entry]) {
            // A processor that has no such counter refuses.
            let _ = vm.vcpu.set_msrs(&msrs);
        }
    }
    vm.rewind()?;
    vm.run()?;
    let regs = vm.vcpu.get_regs().map_err(|e| Error::Kvm("GET_REGS", e))?;
    let value = (regs.rdx & 0xFFFF_FFFF) << 32 | regs.rax & 0xFFFF_FFFF;
    Ok(match (regs.rbx, value) {
        (1, _) => Rdpmc::Faults,
        (_, 0) => Rdpmc::SilentZero,
        (_, value) => Rdpmc::Counts(value),
    })
}
