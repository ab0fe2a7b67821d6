//! What is counted of an operation, and on which side.

use serde::{Deserialize, Deserializer, Serialize};

/// Whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Side {
    Host,
    Guest,
}

impl Side {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Guest => "guest",
        }
    }
}

/// What was counted between two marks, or in one operation on average. What could not be counted is not a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Instructions in user mode of the side that is measured.
    #[serde(deserialize_with = "number")]
    pub(crate) user: f64,
    /// Instructions in kernel mode.
    #[serde(deserialize_with = "number")]
    pub(crate) kernel: f64,
    /// In both; where there was room for one counter only, this alone.
    #[serde(default = "unknown", deserialize_with = "number")]
    pub(crate) total: f64,
    /// Exits of the guest.
    #[serde(deserialize_with = "number")]
    pub(crate) exits: f64,
    /// Exits that reached the VMM.
    #[serde(deserialize_with = "number")]
    pub(crate) user_exits: f64,
}

fn unknown() -> f64 {
    f64::NAN
}

/// JSON has null for what is not a number.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Cost {
    /// Instructions in both modes, if they were counted.
    pub(crate) fn instructions(&self) -> Option<f64> {
        [self.total, self.user + self.kernel].into_iter().find(|sum| sum.is_finite())
    }

    pub(crate) fn map2(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            user: f(self.user, other.user),
            kernel: f(self.kernel, other.kernel),
            total: f(self.total, other.total),
            exits: f(self.exits, other.exits),
            user_exits: f(self.user_exits, other.user_exits),
        }
    }
}

/// One line of what `bench measure` writes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    Cost { name: String, cost: Cost },
    NotRun { name: String, reason: String },
    Counted { name: String, known: u64, counted: u64 },
}

impl Line {
    /// The operation that it is about.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Cost { name, .. } | Self::NotRun { name, .. } | Self::Counted { name, .. } => name,
        }
    }

    /// Whether instructions should have been counted, and could not be.
    pub(crate) fn is_uncounted(&self) -> bool {
        matches!(self, Self::Cost { cost, .. } if cost.instructions().is_none())
    }

    /// With another name.
    pub(crate) fn named(mut self, to: impl FnOnce(String) -> String) -> Self {
        match &mut self {
            Self::Cost { name, .. } | Self::NotRun { name, .. } | Self::Counted { name, .. } => {
                *name = to(std::mem::take(name));
            }
        }
        self
    }
}
