//! Whether a guest gets the MSR door, which depends on what RDPMC does on this host ([`rdpmc`](crate::machine::rdpmc_trial)).

use clap::ValueEnum;

use super::rdpmc_probe::{self, Rdpmc};

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MsrDoor {
    /// Emulate them; refuse to run where RDPMC would give the guest wrong numbers
    #[default]
    On,
    /// Do not: the guest has the paravirtual interface alone, which its driver uses and which never needs RDPMC
    Off,
    /// Emulate them, whatever RDPMC does on this host
    Unchecked,
}

/// What the guest gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its own PMU registers work.
    pub msr_door: bool,
    /// RDPMC faults, so that its driver has to stand in.
    pub rdpmc_faults: bool,
}

impl Plan {
    /// No MSR door. RDPMC has nothing to read then, and what it does does not matter.
    pub const CLOSED: Self = Self { msr_door: false, rdpmc_faults: false };
}

/// Nobody knows whether its driver has to stand in.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot find out what RDPMC does in guests on this host ({0}); with '--msr-door off' it does not matter"
)]
pub struct Unknown(#[from] rdpmc_probe::Error);

/// Decide. That RDPMC faults where it must the machine itself sees, when it is made; `probe` is asked only if that does
/// not matter.
pub fn plan(
    asked: MsrDoor,
    probe: impl FnOnce() -> Result<Rdpmc, rdpmc_probe::Error>,
) -> Result<Plan, Unknown> {
    Ok(match asked {
        MsrDoor::Off => Plan::CLOSED,
        MsrDoor::On => Plan { msr_door: true, rdpmc_faults: true },
        MsrDoor::Unchecked => Plan { msr_door: true, rdpmc_faults: probe()? == Rdpmc::Faults },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unasked() -> Result<Rdpmc, rdpmc_probe::Error> {
        panic!("asked")
    }

    #[test]
    fn only_who_does_not_care_is_told_by_a_probe() {
        assert_eq!(plan(MsrDoor::Off, unasked).unwrap(), Plan::CLOSED);
        assert_eq!(plan(MsrDoor::On, unasked).unwrap(), Plan { msr_door: true, rdpmc_faults: true });
        for (found, rdpmc_faults) in
            [(Rdpmc::Faults, true), (Rdpmc::SilentZero, false), (Rdpmc::Counts(7), false)]
        {
            let plan = plan(MsrDoor::Unchecked, || Ok(found)).unwrap();
            assert_eq!(plan, Plan { msr_door: true, rdpmc_faults });
        }
    }

    #[test]
    fn a_failed_probe_is_no_permission() {
        let unknown =
            plan(MsrDoor::Unchecked, || Err(rdpmc_probe::Error::Exit("Shutdown".to_owned()))).unwrap_err();
        assert!(unknown.to_string().contains("--msr-door off"), "{unknown}");
    }
}
