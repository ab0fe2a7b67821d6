//! Whether a guest gets the MSR door on this host, which depends on what RDPMC does here ([`rdpmc`](super::rdpmc)).

use clap::ValueEnum;

use super::rdpmc::{self, Rdpmc};

/// What the user asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MsrDoor {
    /// The guest's own PMU registers work, if RDPMC cannot give wrong numbers here
    #[default]
    On,
    /// Only the perfctr door, for guests with perfvisor's driver; it never needs RDPMC
    Off,
    /// The guest's own PMU registers work, whatever RDPMC does here
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

/// Why the guest does not get what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The probe failed.
    #[error(
        "cannot find out what RDPMC does in guests of this host ({0}); with '--msr-door off' it does not matter"
    )]
    Probe(#[from] rdpmc::Error),
    /// A plausible wrong number.
    #[error(
        "in guests of this host RDPMC reads 0 instead of faulting, so whoever reads counters by it, as the guest's perf \
         does, would see wrong numbers.\n{REMEDIES}"
    )]
    SilentZero,
    /// KVM's own vPMU answers.
    #[error(
        "in guests of this host RDPMC reads a counter of KVM's own vPMU, which cannot be switched off here, so whoever reads \
         counters by it, as the guest's perf does, would see wrong numbers.\n{REMEDIES}"
    )]
    Counts,
}

const REMEDIES: &str = "Either choose '--msr-door off': only the perfctr door, which never needs RDPMC and counts right;\n\
    or a host kernel whose RDPMC faults, as Linux 6.12's does; or the lab machine: 'perfvisor --lab run';\n\
    or '--msr-door unchecked', if nothing in the guest uses RDPMC.";

/// Decide. `probe` is asked only if it matters.
pub fn plan(asked: MsrDoor, probe: impl FnOnce() -> Result<Rdpmc, rdpmc::Error>) -> Result<Plan, Refusal> {
    if asked == MsrDoor::Off {
        return Ok(Plan::CLOSED);
    }
    match (probe()?, asked) {
        (Rdpmc::Faults, _) => Ok(Plan { msr_door: true, rdpmc_faults: true }),
        (_, MsrDoor::Unchecked) => Ok(Plan { msr_door: true, rdpmc_faults: false }),
        (Rdpmc::SilentZero, _) => Err(Refusal::SilentZero),
        (Rdpmc::Counts(_), _) => Err(Refusal::Counts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(asked: MsrDoor, found: Rdpmc) -> Result<(bool, bool), String> {
        plan(asked, || Ok(found)).map(|p| (p.msr_door, p.rdpmc_faults)).map_err(|e| e.to_string())
    }

    #[test]
    fn a_fault_is_what_the_door_needs() {
        for asked in [MsrDoor::On, MsrDoor::Unchecked] {
            assert_eq!(decide(asked, Rdpmc::Faults), Ok((true, true)));
        }
    }

    #[test]
    fn a_wrong_number_is_refused_unless_told_otherwise() {
        for (found, reason) in [(Rdpmc::SilentZero, "reads 0"), (Rdpmc::Counts(7), "KVM's own vPMU")] {
            let refusal = decide(MsrDoor::On, found).unwrap_err();
            for word in [reason, "--msr-door off", "--msr-door unchecked", "--lab"] {
                assert!(refusal.contains(word), "{refusal}");
            }
            assert_eq!(decide(MsrDoor::Unchecked, found), Ok((true, false)));
        }
    }

    #[test]
    fn without_the_door_nothing_is_asked() {
        assert_eq!(plan(MsrDoor::Off, || panic!("asked")).unwrap(), Plan::CLOSED);
    }

    #[test]
    fn a_failed_probe_is_no_permission() {
        for asked in [MsrDoor::On, MsrDoor::Unchecked] {
            let refusal = plan(asked, || Err(rdpmc::Error::Exit("Shutdown".to_owned()))).unwrap_err();
            assert!(refusal.to_string().contains("--msr-door off"), "{refusal}");
        }
    }
}
