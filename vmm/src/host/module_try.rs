//! Whether the kernel module's counters count on this host: a throw-away VM runs with one of them.
//!
//! The module asks the processor whether it can count guests alone. Below another hypervisor the answer may be that of
//! registers that nothing stands behind.

use kvm_ioctls::Kvm;
use vpmu::module::{Hold, ModulePmu};
use vpmu::{HostEvent, HostPmu};

use super::tiny_vm::{Error, TinyVm};
use crate::vcpu;

/// mov cx, 1000; loop to itself; hlt.
const CODE: [u8; 6] = [0xB9, 0xE8, 0x03, 0xE2, 0xFE, 0xF4];
/// Of the loop alone.
const INSTRUCTIONS: u64 = 1000;
/// Retired instructions, which AMD's and Intel's processors number alike.
const EVENT: HostEvent = HostEvent { config: 0xC0, usr: true, os: true };

/// Why they are of no use.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// They say that nothing was executed.
    #[error("its counters stand still: {0} of at least 1000 instructions of a small test guest were counted")]
    Still(u64),
    /// The first one could not be set.
    #[error("its counters cannot be set ({0})")]
    Load(#[from] vpmu::LoadError),
    /// The probe failed.
    #[error("a small test guest did not run ({0})")]
    Probe(#[from] Error),
}

/// Try them, on the calling thread, which has no others of the module's.
///
/// # Errors
/// What is wrong with them.
pub fn counts(kvm: &Kvm, hold: &Hold) -> Result<(), Unusable> {
    let mut vm = TinyVm::new(kvm, &CODE, &[], |_| Ok(()))?;
    vm.rewind()?;
    let mut pmu = ModulePmu::new(hold.info(), vcpu::signal());
    pmu.load(0, EVENT)?;
    vm.run()?;
    match pmu.now(0) {
        Some(counted) if counted >= INSTRUCTIONS => Ok(()),
        counted => Err(Unusable::Still(counted.unwrap_or(0))),
    }
}
