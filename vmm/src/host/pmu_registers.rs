//! Whether a guest gets emulated PMU registers, which depends on what RDPMC does on this host
//! ([`rdpmc`](crate::machine::rdpmc_trial)).

use clap::ValueEnum;

use super::rdpmc_probe::{self, Rdpmc};

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PmuRegisters {
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
    pub pmu_registers: bool,
    /// RDPMC faults, so that its driver has to stand in.
    pub rdpmc_faults: bool,
}

impl Plan {
    /// No emulated PMU registers. RDPMC has nothing to read then, and what it does does not matter.
    pub const OFF: Self = Self { pmu_registers: false, rdpmc_faults: false };
}

/// Nobody knows whether its driver has to stand in.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot find out what RDPMC does in guests on this host ({0}); with '--pmu-registers off' it does not matter"
)]
pub struct Unknown(#[from] rdpmc_probe::Error);

/// Decide. That RDPMC faults where it must the machine itself sees, when it is made; `probe` is asked only if that does
/// not matter.
pub fn plan(
    asked: PmuRegisters,
    probe: impl FnOnce() -> Result<Rdpmc, rdpmc_probe::Error>,
) -> Result<Plan, Unknown> {
    Ok(match asked {
        PmuRegisters::Off => Plan::OFF,
        PmuRegisters::On => Plan { pmu_registers: true, rdpmc_faults: true },
        PmuRegisters::Unchecked => Plan { pmu_registers: true, rdpmc_faults: probe()? == Rdpmc::Faults },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unasked() -> Result<Rdpmc, rdpmc_probe::Error> {
        panic!("asked")
    }

    #[test]
    fn only_without_a_check_a_probe_decides() {
        assert_eq!(plan(PmuRegisters::Off, unasked).unwrap(), Plan::OFF);
        assert_eq!(
            plan(PmuRegisters::On, unasked).unwrap(),
            Plan { pmu_registers: true, rdpmc_faults: true }
        );
        for (found, rdpmc_faults) in
            [(Rdpmc::Faults, true), (Rdpmc::SilentZero, false), (Rdpmc::Counts(7), false)]
        {
            let plan = plan(PmuRegisters::Unchecked, || Ok(found)).unwrap();
            assert_eq!(plan, Plan { pmu_registers: true, rdpmc_faults });
        }
    }

    #[test]
    fn a_failed_probe_is_no_permission() {
        let unknown = plan(PmuRegisters::Unchecked, || Err(rdpmc_probe::Error::Exit("Shutdown".to_owned())))
            .unwrap_err();
        assert!(unknown.to_string().contains("--pmu-registers off"), "{unknown}");
    }
}
