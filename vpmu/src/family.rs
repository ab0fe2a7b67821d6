//! Guest-visible PMUs. Each family is one file: a table of facts, its checks, and what its events are elsewhere.

mod amd;
mod amd_core;
mod amd_v2;
mod c3;
mod choice;
mod cyrix;
mod equivalents;
mod fam10h;
mod generic;
mod intel;
mod k7;
mod k8;
pub(crate) mod p4;
mod p5;
mod p5_like;
mod p6;
mod p6_like;
mod winchip;

use std::fmt;

use perfctr_abi::layout::{CpuControl, MAX_COUNTERS, feature};
use serde::{Deserialize, Serialize};

pub use self::choice::{ModelChoice, UnknownModel};
use crate::control::{Control, ControlError, SelectLayout, counter_count};
use crate::host::HostEvent;
use crate::host_family::{Host, HostFamily};
use crate::registers::{Identity, P4Registers, P6Registers, Registers};
use crate::select::Select;

/// What a guest is told about its processor's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Name in `--pmu`.
    pub keyword: &'static str,
    /// Name for reading.
    pub name: &'static str,
    /// `cpu_type` of [`perfctr_abi::layout::cpu_type`]; for processors that perfctr never knew, the nearest that its
    /// clients understand.
    pub cpu_type: u32,
    /// Number of programmable counters; fixed ones are in `registers`.
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
    /// Whether delivery of a PMI sets the mask bit of LVTPC (Intel since Pentium M and P4), or leaves it (AMD, and
    /// the P6 before).
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

impl PmuCpuid {
    /// Nothing.
    pub const NONE: Self = Self { architectural: None, amd_extended_ecx: 0, perfmon_v2: None };
}

/// A guest PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[allow(missing_docs, reason = "their facts name them")]
pub enum Model {
    P5,
    P5Mmx,
    P6,
    PentiumII,
    PentiumIII,
    PentiumM,
    P4,
    P4M2,
    P4M3,
    CyrixMii,
    WinChipC6,
    WinChip2,
    WinChip3,
    C3,
    K7,
    K8,
    Fam10h,
    AmdCore,
    AmdV2,
    IntelV1,
    IntelV2,
    IntelV3,
    IntelV4,
    IntelV5,
    Generic,
}

impl Model {
    /// Every model, in the order help texts show them.
    pub const ALL: [Self; 25] = [
        Self::P5,
        Self::P5Mmx,
        Self::P6,
        Self::PentiumII,
        Self::PentiumIII,
        Self::PentiumM,
        Self::P4,
        Self::P4M2,
        Self::P4M3,
        Self::CyrixMii,
        Self::WinChipC6,
        Self::WinChip2,
        Self::WinChip3,
        Self::C3,
        Self::K7,
        Self::K8,
        Self::Fam10h,
        Self::AmdCore,
        Self::AmdV2,
        Self::IntelV1,
        Self::IntelV2,
        Self::IntelV3,
        Self::IntelV4,
        Self::IntelV5,
        Self::Generic,
    ];

    /// Its facts.
    pub const fn facts(self) -> &'static Facts {
        match self {
            Self::P5 => &p5::PENTIUM,
            Self::P5Mmx => &p5::PENTIUM_MMX,
            Self::P6 => &p6::PENTIUM_PRO,
            Self::PentiumII => &p6::PENTIUM_II,
            Self::PentiumIII => &p6::PENTIUM_III,
            Self::PentiumM => &p6::PENTIUM_M,
            Self::P4 => &p4::MODEL_1,
            Self::P4M2 => &p4::MODEL_2,
            Self::P4M3 => &p4::MODEL_3,
            Self::CyrixMii => &cyrix::FACTS,
            Self::WinChipC6 => &winchip::C6,
            Self::WinChip2 => &winchip::WINCHIP_2,
            Self::WinChip3 => &winchip::WINCHIP_3,
            Self::C3 => &c3::FACTS,
            Self::K7 => &k7::FACTS,
            Self::K8 => &k8::FACTS,
            Self::Fam10h => &fam10h::FACTS,
            Self::AmdCore => &amd_core::FACTS,
            Self::AmdV2 => &amd_v2::FACTS,
            Self::IntelV1 => &intel::FACTS[0],
            Self::IntelV2 => &intel::FACTS[1],
            Self::IntelV3 => &intel::FACTS[2],
            Self::IntelV4 => &intel::FACTS[3],
            Self::IntelV5 => &intel::FACTS[4],
            Self::Generic => &generic::FACTS,
        }
    }

    /// Check control data as the 2.7.3 low-level driver does, and bring it to normal form.
    ///
    /// # Errors
    /// The first rule that is broken, in the driver's order: i-mode needs PCINT (EPERM), then the rules of the
    /// family, then the restart values of i-mode counters (EINVAL).
    pub fn check(self, control: &CpuControl) -> Result<Control, ControlError> {
        let facts = self.facts();
        if control.nrictrs != 0 && facts.features & feature::PCINT == 0 {
            return Err(ControlError::NoInterrupts);
        }
        let layout = match (self, facts.registers) {
            (Self::C3, _) => {
                c3::check(control)?;
                SelectLayout::Plain
            }
            (Self::WinChipC6 | Self::WinChip2 | Self::WinChip3, _) => {
                winchip::check(control)?;
                SelectLayout::Numbered
            }
            (_, Registers::None) => {
                generic::check(control)?;
                SelectLayout::Plain
            }
            (_, Registers::P5(registers)) => {
                p5_like::check(control, registers)?;
                SelectLayout::Numbered
            }
            (_, Registers::P6(registers)) => {
                p6_like::check(control, facts, registers)?;
                if p6_like::is_wide(registers) { SelectLayout::Wide } else { SelectLayout::Plain }
            }
            (_, Registers::P4(registers)) => {
                p4::check(control, registers)?;
                SelectLayout::P4
            }
        };
        check_ireset(control)?;
        Ok(Control::normalised(control, layout))
    }

    /// The event of a `host` that counts what `select` counts on this model; `None`: the host has none.
    ///
    /// A guest that is told the host's own identity gets the host's events as they are. Otherwise they are those of the
    /// processor that it is told, and go by what they mean.
    pub fn host_event(self, select: Select, host: Host) -> Option<HostEvent> {
        let p5 = |registers, events| p5_like::host_event(select, host.family, registers, events);
        match self {
            Self::Generic => None,
            Self::P5 => p5(&p5::PENTIUM_REGISTERS, p5::EVENTS),
            Self::P5Mmx => p5(&p5_like::REGISTERS, p5::MMX_EVENTS),
            Self::CyrixMii => p5(&cyrix::REGISTERS, cyrix::EVENTS),
            Self::WinChipC6 => p5(&winchip::REGISTERS, winchip::C6_EVENTS),
            Self::WinChip2 | Self::WinChip3 => p5(&winchip::REGISTERS, winchip::EVENTS),
            Self::P6 | Self::PentiumII | Self::PentiumIII | Self::PentiumM => {
                p6::host_event(select, host.family)
            }
            Self::P4 | Self::P4M2 | Self::P4M3 => p4::host_event(select, host.family, self.p4_registers()?),
            Self::C3 => c3::host_event(select, host.family),
            Self::K7 | Self::K8 => amd::host_event(select, self.told(host), host.family, p6_like::WHAT),
            Self::Fam10h | Self::AmdCore | Self::AmdV2 => {
                amd::host_event(select, self.told(host), host.family, amd::WIDE_WHAT)
            }
            Self::IntelV1 | Self::IntelV2 | Self::IntelV3 | Self::IntelV4 | Self::IntelV5 => {
                intel::host_event(select, host.family, self.identity(&host).is_none())
            }
        }
    }

    /// The family of the processor that the guest of an AMD model is told on `host`.
    fn told(self, host: Host) -> HostFamily {
        self.identity(&host).map_or(host.family, |identity| {
            HostFamily::of_amd(identity.family.into(), identity.model.into(), false, false)
        })
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
        self.facts().identity.filter(|_| !(host.native && host.nearest == self))
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
mod tests;
