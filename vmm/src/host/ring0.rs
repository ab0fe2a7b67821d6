//! How fast guest kernel code really runs: a throw-away VM with a short loop in ring 0.
//!
//! Some hosts run guest kernel code through an instruction emulator; nothing announces that, so it is measured.

use std::time::Instant;

use kvm_bindings::{kvm_regs, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Rounds of the loop, two instructions each. A processor needs some 20 microseconds, an emulator 20 milliseconds.
const ROUNDS: u32 = 20_000;
const CODE_AT: u64 = 0x1000;

/// Why the probe could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// KVM refused a step.
    #[error("{0}: {1}")]
    Kvm(&'static str, kvm_ioctls::Error),
    /// No memory for it.
    #[error("memory: {0}")]
    Memory(String),
    /// The guest did something else than halt.
    #[error("unexpected exit {0}")]
    Exit(String),
}

/// How often the loop runs at most. The best time counts: the first includes the guest's page faults, and any may
/// include another process.
const TRIES: u32 = 5;

/// Guest instructions a second in ring 0; measured until it is at least `enough`, or no better after some tries.
pub fn speed(kvm: &Kvm, enough: u64) -> Result<u64, Error> {
    let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), 0x2000)])
        .map_err(|e| Error::Memory(e.to_string()))?;
    // Real mode: mov ecx, ROUNDS; again: dec ecx; jnz again; hlt.
    let mut code = vec![0x66, 0xB9];
    code.extend(ROUNDS.to_le_bytes());
    code.extend([0x66, 0x49, 0x75, 0xFC, 0xF4]);
    memory.write_slice(&code, GuestAddress(CODE_AT)).map_err(|e| Error::Memory(e.to_string()))?;

    let vm = kvm.create_vm().map_err(|e| Error::Kvm("CREATE_VM", e))?;
    map(&vm, &memory)?;
    let mut vcpu = vm.create_vcpu(0).map_err(|e| Error::Kvm("CREATE_VCPU", e))?;
    let mut sregs = vcpu.get_sregs().map_err(|e| Error::Kvm("GET_SREGS", e))?;
    sregs.cs.base = 0;
    sregs.cs.selector = 0;
    vcpu.set_sregs(&sregs).map_err(|e| Error::Kvm("SET_SREGS", e))?;
    let mut best = 0;
    for _ in 0..TRIES {
        vcpu.set_regs(&kvm_regs { rip: CODE_AT, rflags: 2, ..Default::default() })
            .map_err(|e| Error::Kvm("SET_REGS", e))?;
        best = best.max(run(&mut vcpu)?);
        if best >= enough {
            break;
        }
    }
    Ok(best)
}

fn run(vcpu: &mut VcpuFd) -> Result<u64, Error> {
    let start = Instant::now();
    loop {
        match vcpu.run() {
            // Without an in-kernel irqchip a halt comes to us.
            Ok(VcpuExit::Hlt) => break,
            Ok(VcpuExit::Intr) => {}
            Ok(other) => return Err(Error::Exit(format!("{other:?}"))),
            Err(e) if e.errno() == libc::EINTR => {}
            Err(e) => return Err(Error::Kvm("RUN", e)),
        }
    }
    let nanoseconds = start.elapsed().as_nanos().max(1) as u64;
    Ok(u64::from(ROUNDS) * 2 * 1_000_000_000 / nanoseconds)
}

#[allow(unsafe_code)]
fn map(vm: &kvm_ioctls::VmFd, memory: &GuestMemoryMmap) -> Result<(), Error> {
    let host = memory.get_host_address(GuestAddress(0)).map_err(|e| Error::Memory(e.to_string()))?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        guest_phys_addr: 0,
        memory_size: 0x2000,
        userspace_addr: host as u64,
        flags: 0,
    };
    // SAFETY: the range is `memory`'s mapping, which the caller keeps until the VM is gone.
    unsafe { vm.set_user_memory_region(region) }.map_err(|e| Error::Kvm("SET_USER_MEMORY_REGION", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_runs_wherever_kvm_does() {
        match Kvm::new() {
            Ok(kvm) => assert!(speed(&kvm, u64::MAX).unwrap() > 0),
            Err(e) => println!("not run: the_probe_runs_wherever_kvm_does: /dev/kvm: {e}"),
        }
    }
}
