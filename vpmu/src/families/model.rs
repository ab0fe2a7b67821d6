//! The guest PMUs by name: one table, from which everything that depends on the family is taken.

use std::fmt;

use perfctr_abi::layout::{CpuControl, MAX_COUNTERS, feature};
use serde::{Deserialize, Serialize};

use crate::families::control_data::{Control, ControlError, counter_count};
use crate::families::facts::{Facts, Family, PmuCpuid, Target};
use crate::families::registers::{Identity, P4Registers, P6Registers, Registers};
use crate::families::select::Select;
use crate::families::{amd_core, amd_v2, c3, cyrix, fam10h, generic, intel, k7, k8, p4, p5, p6, winchip};
use crate::host::pmu::HostEvent;
use crate::host::processor::{Host, HostCounters};

/// The models and their entries, in the order help texts show them.
macro_rules! models {
    ($($model:ident: $entry:path,)*) => {
        /// A guest PMU.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        #[allow(missing_docs, reason = "their facts name them")]
        pub enum Model {
            $($model),*
        }

        impl Model {
            /// Every model, in the order help texts show them.
            pub const ALL: [Self; TABLE.len()] = [$(Self::$model),*];
        }

        /// By model.
        static TABLE: [&Family; [$(stringify!($model)),*].len()] = [$(&$entry),*];
    };
}

models! {
    P5: p5::PENTIUM,
    P5Mmx: p5::PENTIUM_MMX,
    P6: p6::PENTIUM_PRO,
    PentiumII: p6::PENTIUM_II,
    PentiumIII: p6::PENTIUM_III,
    PentiumM: p6::PENTIUM_M,
    P4: p4::MODEL_1,
    P4M2: p4::MODEL_2,
    P4M3: p4::MODEL_3,
    CyrixMii: cyrix::MII,
    WinChipC6: winchip::C6,
    WinChip2: winchip::WINCHIP_2,
    WinChip3: winchip::WINCHIP_3,
    C3: c3::C3,
    K7: k7::K7,
    K8: k8::K8,
    Fam10h: fam10h::FAM10H,
    AmdCore: amd_core::CORE_EXTENSION,
    AmdV2: amd_v2::PERFMON_V2,
    IntelV1: intel::VERSION_1,
    IntelV2: intel::VERSION_2,
    IntelV3: intel::VERSION_3,
    IntelV4: intel::VERSION_4,
    IntelV5: intel::VERSION_5,
    Generic: generic::GENERIC,
}

impl Model {
    const fn family(self) -> &'static Family {
        TABLE[self as usize]
    }

    /// Its facts.
    pub const fn facts(self) -> &'static Facts {
        &self.family().facts
    }

    /// The counters of a host that is this processor itself; `None`: no host is.
    pub const fn native(self) -> Option<HostCounters> {
        self.family().native
    }

    /// The model nearest to a host's own counters.
    pub fn nearest(host: &Host) -> Self {
        let native = |model: &Self| model.native() == Some(host.counters);
        Self::ALL.into_iter().find(native).unwrap_or(Self::Generic)
    }

    /// Check control data as the 2.7.3 low-level driver does, and bring it to normal form.
    ///
    /// # Errors
    /// The first rule that is broken, in the driver's order: i-mode needs PCINT (EPERM), then the rules of the
    /// family, then the restart values of i-mode counters (EINVAL).
    pub fn check(self, control: &CpuControl) -> Result<Control, ControlError> {
        let family = self.family();
        if control.nrictrs != 0 && family.facts.features & feature::PCINT == 0 {
            return Err(ControlError::NoInterrupts);
        }
        (family.check)(control)?;
        check_ireset(control)?;
        Ok(Control::normalised(control, family.layout))
    }

    /// The event of a `host` that counts what `select` counts on this model; `None`: the host has none.
    ///
    /// A guest that sees the host's own identity gets the host's events as they are. Otherwise they are those of the
    /// processor that it sees, and go by what they mean.
    pub fn host_event(self, select: Select, host: Host) -> Option<HostEvent> {
        let target = Target { host: host.family, identity: self.identity(&host) };
        (self.family().host_event)(select, target)
    }

    /// What CPUID says of the counters on a `host`: the facts, less what that host cannot count (architectural
    /// events, and fixed counters, of Intel's).
    pub fn cpuid(self, host: Host) -> PmuCpuid {
        let cpuid = self.facts().cpuid;
        let counts = |select| self.host_event(select, host).is_some();
        let architectural = cpuid.architectural.map(|leaf| {
            let events = intel::ARCHITECTURAL_EVENTS.iter().enumerate();
            let missing =
                events.filter(|(_, event)| !counts(Select::general(**event))).map(|(bit, _)| 1 << bit);
            let fixed = (0..).take_while(|&number| counts(Select::fixed(number, 0))).count();
            intel::leaf_on_host(leaf, missing.sum(), fixed as u32)
        });
        PmuCpuid { architectural, ..cpuid }
    }

    /// The identity to show on `host`; `None` for the host's own, where it is a processor of this family.
    pub fn identity(self, host: &Host) -> Option<Identity> {
        self.facts().identity.filter(|_| self.native() != Some(host.counters))
    }

    /// Its registers, if it is a P4.
    pub const fn p4_registers(self) -> Option<&'static P4Registers> {
        match self.facts().registers {
            Registers::P4(registers) => Some(registers),
            _ => None,
        }
    }

    /// Its registers, if they are laid out as P6's.
    pub const fn p6_registers(self) -> Option<&'static P6Registers> {
        match self.facts().registers {
            Registers::P6(registers) => Some(registers),
            _ => None,
        }
    }
}

/// Overflow is the step from negative to non-negative, so an i-mode counter must start below zero.
fn check_ireset(control: &CpuControl) -> Result<(), ControlError> {
    let count = counter_count(control, MAX_COUNTERS as u32).ok_or(ControlError::TooMany)?;
    match (control.nractrs as usize..count).find(|&i| control.ireset[i] >= 0) {
        Some(i) => Err(ControlError::Reset(i)),
        None => Ok(()),
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.facts().keyword)
    }
}

impl From<Model> for &'static str {
    fn from(model: Model) -> Self {
        model.facts().keyword
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
