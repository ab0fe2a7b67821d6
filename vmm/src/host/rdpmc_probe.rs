//! What RDPMC does in guests of this host, without a machine: on a throw-away VM.

use kvm_ioctls::Kvm;

pub use super::tiny_vm::Error;
use super::tiny_vm::TinyVm;
use crate::machine;
pub use crate::machine::rdpmc_trial::Rdpmc;

/// Try it, with the processor and the vPMU that a machine's vCPUs have.
pub fn probe(kvm: &Kvm) -> Result<Rdpmc, Error> {
    let mut vm = TinyVm::new(kvm, &[], &[], |vm| Ok(machine::filter::switch_vpmu_off(vm)?))?;
    let supported = machine::cpuid::supported(kvm)?;
    let leaves = machine::cpuid::for_vcpu(&supported, 0, 1, machine::cpuid::Shown::None)?;
    vm.vcpu.set_cpuid2(&leaves).map_err(|e| Error::Kvm("SET_CPUID2", e))?;
    Ok(machine::rdpmc_trial::try_on(&mut vm.vcpu, &vm.memory)?)
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestAddress};

    use super::*;

    #[test]
    fn it_leaves_memory_and_registers_as_they_were() {
        let kvm = match Kvm::new() {
            Ok(kvm) => kvm,
            Err(e) => {
                println!("not run: it_leaves_memory_and_registers_as_they_were: /dev/kvm: {e}");
                return;
            }
        };
        let mut vm =
            TinyVm::new(&kvm, &[0xA5; 0x800], &[], |vm| Ok(machine::filter::switch_vpmu_off(vm)?)).unwrap();
        let state = |vm: &TinyVm| {
            let mut bytes = vec![0; 0x2000];
            vm.memory.read_slice(&mut bytes, GuestAddress(0)).unwrap();
            (bytes, vm.vcpu.get_sregs().unwrap())
        };
        let before = state(&vm);
        let first = machine::rdpmc_trial::try_on(&mut vm.vcpu, &vm.memory).unwrap();
        assert_eq!(state(&vm), before);
        assert_eq!(machine::rdpmc_trial::try_on(&mut vm.vcpu, &vm.memory).unwrap(), first);
    }
}
