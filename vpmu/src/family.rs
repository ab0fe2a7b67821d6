//! Guest-visible PMUs. Each family is one file: a table of facts, and its checks.

mod amd_events;
mod generic;
mod k7;
mod k8;
mod p6_like;

use std::fmt;
use std::str::FromStr;

use perfctr_abi::layout::{CpuControl, MAX_COUNTERS, feature};
use serde::{Deserialize, Serialize};

use crate::control::{Control, ControlError, counter_count};
use crate::host::HostEvent;
use crate::host_family::HostFamily;
use crate::registers::{Identity, Registers};
use crate::select::Select;

/// What a guest is told about its processor's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Name, as `perfex -i` shows it.
    pub name: &'static str,
    /// `cpu_type` of [`perfctr_abi::layout::cpu_type`].
    pub cpu_type: u32,
    /// Number of programmable counters.
    pub counters: u32,
    /// Their width in bits; 0 without counters.
    pub width: u32,
    /// Bits of [`perfctr_abi::layout::feature`]. No RDPMC: that instruction never reaches the VMM. PCINT: the
    /// processor has overflow interrupts.
    pub features: u32,
    /// How the processor calls itself; `None`: as the host does.
    pub identity: Option<Identity>,
    /// What CPUID says of its counters.
    pub cpuid: PmuCpuid,
    /// The registers behind the MSR door.
    pub registers: Registers,
    /// Whether delivery of a PMI sets the mask bit of LVTPC (Intel, see the
    /// family's own file), or leaves it (AMD).
    pub lvtpc_masks: bool,
}

/// What CPUID says of a processor's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmuCpuid {
    /// Leaf 0xA: EAX, EBX, ECX, EDX (SDM volume 2A, CPUID).
    pub architectural: Option<[u32; 4]>,
    /// Bits of leaf 8000_0001 ECX (APM volume 3, appendix E).
    pub amd_extended_ecx: u32,
    /// EBX of leaf 8000_0022, whose EAX is 1 then.
    pub perfmon_v2: Option<u32>,
}

/// A guest PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// The time-stamp counter only.
    Generic,
    /// AMD K7 (Athlon).
    K7,
    /// AMD K8 (Athlon 64, Opteron).
    K8,
}

impl Model {
    /// Every model, in the order help texts show them.
    pub const ALL: [Self; 3] = [Self::K7, Self::K8, Self::Generic];

    /// Its facts.
    pub const fn facts(self) -> &'static Facts {
        match self {
            Self::Generic => &generic::FACTS,
            Self::K7 => &k7::FACTS,
            Self::K8 => &k8::FACTS,
        }
    }

    /// Check control data as the 2.7.3 low-level driver does, and bring it to normal form.
    ///
    /// # Errors
    /// The first rule that is broken, in the driver's order: i-mode needs PCINT (EPERM), then the rules of the
    /// family, then the restart values of i-mode counters (EINVAL).
    pub fn check(self, control: &CpuControl) -> Result<Control, ControlError> {
        if control.nrictrs != 0 && self.facts().features & feature::PCINT == 0 {
            return Err(ControlError::NoInterrupts);
        }
        match self {
            Self::Generic => generic::check(control),
            Self::K7 => k7::check(control),
            Self::K8 => k8::check(control),
        }?;
        check_ireset(control)?;
        Ok(Control::normalised(control, matches!(self.facts().registers, Registers::P4(_))))
    }

    /// The event of a `host` that counts what `select` counts on this model; `None`: the host has none.
    pub fn host_event(self, select: Select, host: HostFamily) -> Option<HostEvent> {
        match self {
            Self::Generic => None,
            Self::K7 | Self::K8 => amd_events::host_event(select, host),
        }
    }

    /// The model nearest to `host`. Intel hosts get the generic model until Intel families exist: a K8 there would
    /// refuse all but four events.
    pub const fn nearest(host: HostFamily) -> Self {
        match host {
            HostFamily::Amd => Self::K8,
            HostFamily::Intel | HostFamily::Other => Self::Generic,
        }
    }

    const fn keyword(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::K7 => "k7",
            Self::K8 => "k8",
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
        f.pad(self.keyword())
    }
}

/// No model is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no PMU model is called {0:?}; there are auto, k7, k8 and generic")]
pub struct UnknownModel(String);

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Self, UnknownModel> {
        Self::ALL.into_iter().find(|model| model.keyword() == text).ok_or_else(|| UnknownModel(text.into()))
    }
}

/// The value of `--pmu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModelChoice {
    /// The model nearest to the host.
    #[default]
    Auto,
    /// This model.
    Only(Model),
}

impl ModelChoice {
    /// The model to use on `host`.
    pub const fn resolve(self, host: HostFamily) -> Model {
        match self {
            Self::Auto => Model::nearest(host),
            Self::Only(model) => model,
        }
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Only(model) => model.fmt(f),
        }
    }
}

impl FromStr for ModelChoice {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Self, UnknownModel> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Only),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for model in Model::ALL {
            assert_eq!(model.to_string().parse(), Ok(model));
            let choice = ModelChoice::Only(model);
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!("auto".parse(), Ok(ModelChoice::Auto));
        assert_eq!(ModelChoice::Auto.to_string(), "auto");
        assert!("auto".parse::<Model>().is_err());
        assert!("K8 ".parse::<ModelChoice>().is_err());
    }

    #[test]
    fn i_mode_without_pcint_is_eperm_before_all_else() {
        for model in Model::ALL.into_iter().filter(|model| model.facts().features & feature::PCINT == 0) {
            for (nractrs, nrictrs) in [(0, 1), (3, 1), (u32::MAX, 1), (1, u32::MAX)] {
                let control = CpuControl { nractrs, nrictrs, ..CpuControl::default() };
                let error = model.check(&control).unwrap_err();
                assert_eq!((error, error.result()), (ControlError::NoInterrupts, -1), "{model}");
            }
        }
    }

    #[test]
    fn a_restart_value_that_is_not_negative_is_einval() {
        let mut control = CpuControl { nractrs: 1, nrictrs: 1, ..CpuControl::default() };
        for value in [0, 1, i32::MAX] {
            control.ireset = [-1, value].repeat(9).try_into().unwrap();
            assert_eq!(check_ireset(&control), Err(ControlError::Reset(1)));
            control.ireset = [value, -1].repeat(9).try_into().unwrap();
            assert_eq!(check_ireset(&control), Ok(()), "a-mode counters have no restart value");
        }
        assert_eq!(ControlError::Reset(1).result(), -22);
    }

    #[test]
    fn auto_is_the_nearest() {
        assert_eq!(ModelChoice::Auto.resolve(HostFamily::Amd), Model::K8);
        assert_eq!(ModelChoice::Auto.resolve(HostFamily::Intel), Model::Generic);
        assert_eq!(ModelChoice::Only(Model::K7).resolve(HostFamily::Intel), Model::K7);
    }
}
