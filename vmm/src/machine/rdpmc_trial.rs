//! What RDPMC does in a guest of this host: tried in ring 0 of a vCPU that has not booted yet.
//!
//! RDPMC never exits to the VMM (no KVM offers that), so a guest that reads counters by it gets what KVM gives. With KVM's own
//! vPMU off, recent kernels raise #GP, which a guest driver can serve. Older ones, 6.1 on AMD among them, let it read 0 without
//! a fault: a plausible wrong number, and nothing announces it.
//!
//! A machine tries it on its own first vCPU: a VM for this alone costs some two million instructions, as much as
//! everything else that perfvisor does up to a guest's first instruction.

use kvm_bindings::{Msrs, kvm_msr_entry, kvm_regs};
use kvm_ioctls::{VcpuExit, VcpuFd};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::error::{Error, Refusal};

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

impl Rdpmc {
    /// Whether no wrong number is read.
    fn gives_nothing_wrong(self) -> Result<(), Refusal> {
        match self {
            Self::Faults => Ok(()),
            Self::SilentZero => Err(Refusal::SilentZero),
            Self::Counts(_) => Err(Refusal::Counts),
        }
    }
}

/// Real mode's interrupt vectors, the code and its stack, in this order; what the guest's memory has there comes back.
const PLACE: u16 = 0x1000;
const SIZE: usize = 0x100;
const CODE_AT: u16 = PLACE + 0x40;
/// xor ecx, ecx; rdpmc; out 0x80, al.
const CODE: [u8; 7] = [0x66, 0x31, 0xC9, 0x0F, 0x33, 0xE6, 0x80];
/// Behind it the handler of #GP: inc bx; out 0x80, al.
const HANDLER: [u8; 3] = [0x43, 0xE6, 0x80];
const GP: u16 = 13;
/// Counter 0 of Intel's and of AMD's processors. Filled beforehand, so that a counter that is there does not read 0.
const COUNTERS: [u32; 2] = [0xC1, 0xC001_0004];
const FILL: u64 = 0x5A5A;

/// See that it faults, for a guest whose PMU registers are the VMM's.
pub(super) fn must_fault(vcpu: &mut VcpuFd, memory: &GuestMemoryMmap) -> Result<(), Error> {
    try_on(vcpu, memory)?.gives_nothing_wrong().map_err(Error::Rdpmc)
}

/// Try it on a vCPU as it is after its creation and has its CPUID. Registers of its PMU may have changed afterwards.
pub(crate) fn try_on(vcpu: &mut VcpuFd, memory: &GuestMemoryMmap) -> Result<Rdpmc, Error> {
    for index in COUNTERS {
        let entry = kvm_msr_entry { index, data: FILL, ..Default::default() };
        if let Ok(msrs) = Msrs::from_entries(&[entry]) {
            // A processor that has no such counter refuses.
            let _ = vcpu.set_msrs(&msrs);
        }
    }
    let place = GuestAddress(PLACE.into());
    let mut before = [0; SIZE];
    memory.read_slice(&mut before, place).map_err(Error::Memory)?;
    let regs = run(vcpu, memory);
    memory.write_slice(&before, place).map_err(Error::Memory)?;
    let regs = regs?;
    let value = (regs.rdx & 0xFFFF_FFFF) << 32 | regs.rax & 0xFFFF_FFFF;
    Ok(match (regs.rbx, value) {
        (1, _) => Rdpmc::Faults,
        (_, 0) => Rdpmc::SilentZero,
        (_, value) => Rdpmc::Counts(value),
    })
}

/// The registers afterwards.
fn run(vcpu: &mut VcpuFd, memory: &GuestMemoryMmap) -> Result<kvm_regs, Error> {
    let put =
        |bytes: &[u8], at: u16| memory.write_slice(bytes, GuestAddress(at.into())).map_err(Error::Memory);
    let handler = CODE_AT + CODE.len() as u16;
    put(&handler.to_le_bytes(), PLACE + 4 * GP)?;
    put(&[0, 0], PLACE + 4 * GP + 2)?;
    put(&CODE, CODE_AT)?;
    put(&HANDLER, handler)?;

    let created = vcpu.get_sregs().map_err(|e| Error::Kvm("GET_SREGS", e))?;
    let mut sregs = created;
    (sregs.cs.base, sregs.cs.selector) = (0, 0);
    sregs.idt.base = PLACE.into();
    vcpu.set_sregs(&sregs).map_err(|e| Error::Kvm("SET_SREGS", e))?;
    let start = kvm_regs {
        rip: CODE_AT.into(),
        rsp: u64::from(PLACE) + SIZE as u64,
        rflags: 2,
        ..Default::default()
    };
    vcpu.set_regs(&start).map_err(|e| Error::Kvm("SET_REGS", e))?;
    let ended = run_to_the_port(vcpu);
    let regs = vcpu.get_regs().map_err(|e| Error::Kvm("GET_REGS", e))?;
    vcpu.set_sregs(&created).map_err(|e| Error::Kvm("SET_SREGS", e))?;
    ended.map(|()| regs)
}

fn run_to_the_port(vcpu: &mut VcpuFd) -> Result<(), Error> {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(..)) => break,
            Ok(VcpuExit::Intr) => {}
            Ok(other) => return Err(Error::Probe(format!("{other:?}"))),
            Err(e) if e.errno() == libc::EINTR => {}
            Err(e) => return Err(Error::Kvm("RUN", e)),
        }
    }
    // KVM ends an exit's instruction when the vCPU is entered again, and this one must not be left for the kernel's first.
    vcpu.set_kvm_immediate_exit(1);
    let completed = vcpu.run().map(drop);
    vcpu.set_kvm_immediate_exit(0);
    match completed {
        Err(e) if e.errno() != libc::EINTR => Err(Error::Kvm("RUN", e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_is_refused_with_its_remedies() {
        for (found, reason) in [(Rdpmc::SilentZero, "reads 0"), (Rdpmc::Counts(7), "KVM's own vPMU")] {
            let refusal = found.gives_nothing_wrong().unwrap_err().to_string();
            for word in [reason, "--pmu-registers off", "--pmu-registers unchecked", "--lab"] {
                assert!(refusal.contains(word), "{refusal}");
            }
        }
        assert_eq!(Rdpmc::Faults.gives_nothing_wrong(), Ok(()));
    }
}
