//! What this host can do: the facts behind `perfvisor doctor` and the choice between here and the lab.

pub mod kvm_vpmu;
pub(crate) mod pmu_holders;
pub mod pmu_registers;
pub mod rdpmc_probe;
pub mod ring0;
pub mod source;
mod tiny_vm;

use kvm_ioctls::Kvm;

/// Below this many guest kernel instructions a second a Linux guest does not boot in reasonable time (it executes
/// over a thousand million on the way). A processor runs thousands of millions; a KVM that emulates ring 0 about two
/// million (docs/kvm-behaviour.md); the lab's about a hundred million.
pub const SLOWEST: u64 = 20_000_000;

/// Why Linux guests cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// KVM cannot be opened.
    #[error("/dev/kvm cannot be used ({0})")]
    NoKvm(kvm_ioctls::Error),
    /// The probe failed.
    #[error("KVM does not run a small test guest ({0})")]
    BrokenKvm(ring0::Error),
    /// Guest kernel code is emulated.
    #[error("this KVM emulates guest kernel code, {:.1} million instructions a second: Linux does not boot on it", *.0 as f64 / 1e6)]
    SlowKvm(u64),
    /// Nothing to count with.
    #[error("this host has no usable performance counters ({0})")]
    NoPmu(String),
}

/// Open KVM and see whether Linux can boot on it.
pub fn open_kvm() -> Result<Kvm, Obstacle> {
    let kvm = Kvm::new().map_err(Obstacle::NoKvm)?;
    let speed = ring0::speed(&kvm, SLOWEST).map_err(Obstacle::BrokenKvm)?;
    if speed < SLOWEST {
        return Err(Obstacle::SlowKvm(speed));
    }
    Ok(kvm)
}
