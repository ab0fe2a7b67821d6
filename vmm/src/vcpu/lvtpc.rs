//! Delivery of overflow interrupts (PMIs) through LVTPC, the local APIC's entry for performance counters.
//!
//! The local APIC is KVM's, and no ioctl delivers one of its local entries. So LVTPC is read when an interrupt is due, and what
//! it asks for is done by other means, on the vCPU's own thread, between two entries into the guest:
//!
//! | delivery mode (SDM volume 3, "Local Vector Table"; APM volume 2, 16.4) | here |
//! |---|---|
//! | 0, fixed | KVM_SIGNAL_MSI of the vector to this APIC's id; it sets the bit in the IRR |
//! | 2, SMI | nothing, as with firmware that ignores it: this machine has neither firmware nor memory for SMM, and KVM would give the VM up |
//! | 4, NMI | KVM_NMI, which is this vCPU's alone, whatever id its APIC has |
//! | 5 and 7, INIT and ExtINT | nothing: not supported for LVTPC; and there is no 8259 to ask for a vector |
//! | 1, 3, 6 | nothing: reserved |
//!
//! Vectors below 16 are illegal and are not delivered. (Hardware also notes that in the error status register, which KVM does
//! not do for its own local interrupts either.) While the mask bit is set nothing is delivered: the interrupt is dropped,
//! as hardware drops it, and what remains is the overflow status, which is the engine's. An APIC that is switched off
//! by its base register delivers nothing; one that is disabled by its spurious-interrupt register has every mask bit set.
//! A guest that gives two of its APICs the same xAPIC id gets a fixed interrupt on both, like every message to that id.
//!
//! # Mask on delivery
//! Processors of Intel's set LVTPC's mask bit when they deliver a PMI (SDM volume 3, "Local Vector Table"), and guests rely on it. In x2APIC mode,
//! which Linux uses in every guest of KVM, KVM_SET_MSRS writes this one register, and nothing else is touched.
//!
//! In xAPIC mode the bit is **not** set. The only way to write is KVM_SET_LAPIC, which replaces the whole APIC by what
//! KVM_GET_LAPIC read before, and that cannot be made to lose and to invent nothing (Linux, `kvm_apic_set_state`):
//! * An IRR bit, or a posted interrupt, that arrives in between is overwritten. Other vCPUs can be held, but an irqfd on
//!   an IO-APIC pin injects from a kernel work queue, at a time that nobody in user space can know.
//! * It restarts the APIC's timer. A one-shot timer that has expired long ago has a count of 0, as one has whose interrupt is just
//!   due; KVM takes it for the second, and an interrupt comes that nobody asked for, at every PMI (tried on Linux 6.1
//!   and 6.18). User space cannot tell the two apart.
//! * It rebuilds the VM's map of APICs and has every vCPU scan the IO-APIC: that, and holding every vCPU, for each sample.
//!
//! What the guest can see of it: LVTPC reads without the mask bit, and an overflow between delivery and the handler's
//! unmasking interrupts once more, with a status that the handler may have dealt with already. No interrupt is lost.
//! AMD's processors behave like that always. Keeping the mask here instead would be worse: a guest that unmasks by
//! writing the value that is there already (Linux does) could not be seen doing so.

use std::sync::Arc;

use kvm_bindings::{Msrs, kvm_msi, kvm_msr_entry};
use kvm_ioctls::{VcpuFd, VmFd};

/// IA32_APIC_BASE: APIC enabled, and in x2APIC mode (SDM volume 3, "Local APIC Status and Location", "x2APIC").
const MSR_APIC_BASE: u32 = 0x1B;
const BASE_ENABLED: u64 = 1 << 11;
const BASE_X2APIC: u64 = 1 << 10;
/// LVTPC in x2APIC mode; in xAPIC mode it is at offset 0x340 (SDM volume 3, "x2APIC Register Address Space").
const MSR_LVTPC: u32 = 0x834;
const XAPIC_LVTPC: usize = 0x340;
/// The id is in bits 24 to 31.
const XAPIC_ID: usize = 0x20;
/// Bits of LVTPC.
const VECTOR: u32 = 0xFF;
const MODE_SHIFT: u32 = 8;
const MODE: u32 = 0b111;
const MASKED: u32 = 1 << 16;
/// Where messages to local APICs go; the destination's id is in bits 12 to 19 (SDM volume 3, "Message Address Register Format").
const MSI_ADDRESS: u32 = 0xFEE0_0000;
const MSI_DESTINATION_SHIFT: u32 = 12;
/// Vectors below are the processor's own.
const FIRST_VECTOR: u8 = 16;

/// KVM refused what it must be able to do.
#[derive(Debug, thiserror::Error)]
#[error("an overflow interrupt cannot be delivered: KVM refused {0}: {1}")]
pub struct Error(&'static str, kvm_ioctls::Error);

#[cfg(test)]
impl Error {
    pub(super) fn for_test() -> Self {
        Self("a test", kvm_ioctls::Error::new(libc::EINVAL))
    }
}

/// What became of an overflow interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The guest gets it as soon as it takes interrupts of this kind.
    Delivered,
    /// LVTPC is masked.
    Masked,
    /// The APIC does not deliver it; see the module.
    Dropped,
}

/// What LVTPC asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Fixed(u8),
    Nmi,
    Masked,
    Invalid,
}

impl Request {
    fn of(lvtpc: u32) -> Self {
        let vector = (lvtpc & VECTOR) as u8;
        match lvtpc >> MODE_SHIFT & MODE {
            _ if lvtpc & MASKED != 0 => Self::Masked,
            0b000 if vector >= FIRST_VECTOR => Self::Fixed(vector),
            0b100 => Self::Nmi,
            _ => Self::Invalid,
        }
    }
}

/// A local APIC as far as it concerns LVTPC.
#[derive(Clone, Copy, Debug)]
struct Apic {
    x2apic: bool,
    id: u8,
    lvtpc: u32,
}

/// Delivers one vCPU's overflow interrupts.
#[derive(Debug)]
pub struct Lvtpc {
    vm: Arc<VmFd>,
    index: u8,
    masks: bool,
}

impl Lvtpc {
    /// For vCPU `index` of `vm`, which has an in-kernel irqchip. `masks`: whether the guest's processor sets the mask bit
    /// on delivery.
    pub fn new(vm: Arc<VmFd>, index: u8, masks: bool) -> Self {
        Self { vm, index, masks }
    }

    /// Deliver one. On the thread that runs `fd`, outside KVM_RUN.
    ///
    /// # Errors
    /// KVM refuses an ioctl that cannot fail on a vCPU with an in-kernel irqchip.
    pub fn deliver(&self, fd: &VcpuFd) -> Result<Outcome, Error> {
        let Some(apic) = self.apic(fd)? else { return Ok(Outcome::Dropped) };
        let outcome = match Request::of(apic.lvtpc) {
            Request::Masked => Outcome::Masked,
            Request::Invalid => Outcome::Dropped,
            Request::Nmi => fd.nmi().map(|()| Outcome::Delivered).map_err(|e| Error("NMI", e))?,
            Request::Fixed(vector) => self.message(apic.id, vector)?,
        };
        if outcome == Outcome::Delivered && self.masks && apic.x2apic {
            mask(fd, apic.lvtpc)?;
        }
        Ok(outcome)
    }

    /// Deliver one of this vector, which the guest chose at the paravirtual interface: its own counters' LVTPC does not
    /// matter.
    ///
    /// # Errors
    /// As for [`deliver`](Self::deliver).
    pub fn send(&self, fd: &VcpuFd, vector: u8) -> Result<Outcome, Error> {
        match self.apic(fd)? {
            Some(apic) => self.message(apic.id, vector),
            None => Ok(Outcome::Dropped),
        }
    }

    /// `None` if it is switched off.
    fn apic(&self, fd: &VcpuFd) -> Result<Option<Apic>, Error> {
        let mut msrs = msrs(&[(MSR_APIC_BASE, 0), (MSR_LVTPC, 0)])?;
        // KVM stops at the first register that it does not have: LVTPC, outside x2APIC mode.
        let read = fd.get_msrs(&mut msrs).map_err(|e| Error("GET_MSRS", e))?;
        let &[base, lvtpc] = msrs.as_slice() else { return Ok(None) };
        match base.data & (BASE_ENABLED | BASE_X2APIC) {
            BASE_ENABLED if read >= 1 => {
                let state = fd.get_lapic().map_err(|e| Error("GET_LAPIC", e))?;
                let register =
                    |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| state.regs[at + byte] as u8));
                let id = (register(XAPIC_ID) >> 24) as u8;
                Ok(Some(Apic { x2apic: false, id, lvtpc: register(XAPIC_LVTPC) }))
            }
            // KVM's x2APIC id is the vCPU's number, and read-only.
            both if both == BASE_ENABLED | BASE_X2APIC && read == 2 => {
                Ok(Some(Apic { x2apic: true, id: self.index, lvtpc: lvtpc.data as u32 }))
            }
            _ => Ok(None),
        }
    }

    fn message(&self, id: u8, vector: u8) -> Result<Outcome, Error> {
        let message = kvm_msi {
            address_lo: MSI_ADDRESS | u32::from(id) << MSI_DESTINATION_SHIFT,
            data: u32::from(vector),
            ..Default::default()
        };
        match self.vm.signal_msi(message) {
            Ok(0) => Ok(Outcome::Dropped),
            Ok(_) => Ok(Outcome::Delivered),
            Err(e) => Err(Error("SIGNAL_MSI", e)),
        }
    }
}

fn msrs(entries: &[(u32, u64)]) -> Result<Msrs, Error> {
    let entries: Vec<_> =
        entries.iter().map(|&(index, data)| kvm_msr_entry { index, data, ..Default::default() }).collect();
    // Refused are only more entries than KVM takes, some thousands.
    Msrs::from_entries(&entries).map_err(|_| Error("MSRS", kvm_ioctls::Error::new(libc::E2BIG)))
}

/// In x2APIC mode.
fn mask(fd: &VcpuFd, lvtpc: u32) -> Result<(), Error> {
    match fd.set_msrs(&msrs(&[(MSR_LVTPC, u64::from(lvtpc | MASKED))])?) {
        Ok(1) => Ok(()),
        Ok(_) => Err(Error("SET_MSRS of LVTPC", kvm_ioctls::Error::new(libc::EINVAL))),
        Err(e) => Err(Error("SET_MSRS of LVTPC", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lvtpc_asks_for() {
        assert_eq!(Request::of(0x400), Request::Nmi);
        assert_eq!(Request::of(0x4FE), Request::Nmi, "the vector means nothing to an NMI");
        assert_eq!(Request::of(0x0FE), Request::Fixed(0xFE));
        assert_eq!(Request::of(0x010), Request::Fixed(16));
        // Its state after a reset.
        assert_eq!(Request::of(0x1_0000), Request::Masked);
        for lvtpc in (0..16).chain([0x100, 0x1FE, 0x200, 0x300, 0x500, 0x600, 0x700]) {
            assert_eq!(Request::of(lvtpc), Request::Invalid, "{lvtpc:#x}");
        }
        for lvtpc in 0..0x800 {
            assert_eq!(Request::of(lvtpc | MASKED), Request::Masked);
            // Delivery status, which is read-only, and the bits that only LINT0 and LINT1 have.
            assert_eq!(Request::of(lvtpc | 0xF000), Request::of(lvtpc));
        }
    }
}
