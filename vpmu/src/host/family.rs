//! Which processor the host is, as far as its events are concerned.

use std::fmt;

/// Families of processors that share an event encoding: what a host is, and what a guest sees.
///
/// AMD's event codes change their meaning from one generation to the next (0D1: dispatch stalls until family 16h,
/// conditional branches since Zen), so each generation is a family of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "AMD's are called by their family numbers, until those were many cores")]
pub enum HostFamily {
    K7,
    K8,
    Fam10h,
    Fam11h,
    Fam12h,
    Fam14h,
    Fam15h,
    Fam16h,
    /// And Hygon's family 18h, and whatever else has PerfMonV2.
    Zen,
    Zen2,
    Zen3,
    Zen4,
    Zen5,
    /// AMD of a generation that is not known here: only what all generations have in common is known.
    Amd,
    /// Intel with architectural performance monitoring. Other events are those of one model.
    Intel,
    /// Anything else: no event is known.
    Other,
}

impl HostFamily {
    /// Every family.
    pub const ALL: [Self; 16] = [
        Self::K7,
        Self::K8,
        Self::Fam10h,
        Self::Fam11h,
        Self::Fam12h,
        Self::Fam14h,
        Self::Fam15h,
        Self::Fam16h,
        Self::Zen,
        Self::Zen2,
        Self::Zen3,
        Self::Zen4,
        Self::Zen5,
        Self::Amd,
        Self::Intel,
        Self::Other,
    ];

    /// Whether it is one of AMD's.
    pub const fn is_amd(self) -> bool {
        !matches!(self, Self::Intel | Self::Other)
    }

    /// The generation of an AMD processor with this family and model (as software computes them).
    pub(crate) const fn of_amd(family: u32, model: u32, core_extension: bool, perfmon_v2: bool) -> Self {
        match family {
            // Virtual processors may have any family. PerfMonV2 is Zen's, and what all Zens have is assumed.
            0..0x19 if perfmon_v2 => Self::Zen,
            // No such processor was made, so what it counts is not known by its family.
            0..0x15 if core_extension => Self::Amd,
            6 => Self::K7,
            0x0F => Self::K8,
            0x10 => Self::Fam10h,
            0x11 => Self::Fam11h,
            0x12 => Self::Fam12h,
            0x14 => Self::Fam14h,
            0x15 => Self::Fam15h,
            0x16 => Self::Fam16h,
            // Models as Linux tells them apart (arch/x86/kernel/cpu/amd.c).
            0x17 => match model {
                0x30..=0x4F | 0x60..=0x7F | 0x90..=0x91 | 0xA0..=0xAF => Self::Zen2,
                _ => Self::Zen,
            },
            // Hygon's, which is a Zen.
            0x18 => Self::Zen,
            0x19 => match model {
                0x10..=0x1F | 0x60..=0xAF => Self::Zen4,
                _ => Self::Zen3,
            },
            0x1A => match model {
                0x00..=0x2F | 0x40..=0x4F | 0x60..=0x7F => Self::Zen5,
                _ => Self::Amd,
            },
            _ => Self::Amd,
        }
    }
}

impl fmt::Display for HostFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::K7 => "AMD K7",
            Self::K8 => "AMD K8",
            Self::Fam10h => "AMD family 10h",
            Self::Fam11h => "AMD family 11h",
            Self::Fam12h => "AMD family 12h",
            Self::Fam14h => "AMD family 14h",
            Self::Fam15h => "AMD family 15h",
            Self::Fam16h => "AMD family 16h",
            Self::Zen => "AMD Zen",
            Self::Zen2 => "AMD Zen 2",
            Self::Zen3 => "AMD Zen 3",
            Self::Zen4 => "AMD Zen 4",
            Self::Zen5 => "AMD Zen 5",
            Self::Amd => "AMD",
            Self::Intel => "Intel",
            Self::Other => "other",
        })
    }
}
