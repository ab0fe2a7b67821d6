//! Models by name, and the one nearest to a host.

use std::fmt;
use std::str::FromStr;

use crate::families::model::Model;
use crate::host::processor::Host;

/// No model is called that.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no PMU model is called {0:?}; there are auto{list}", list = keywords())]
pub struct UnknownModel(String);

fn keywords() -> String {
    Model::ALL.iter().map(|model| format!(", {model}")).collect()
}

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Self, UnknownModel> {
        Self::ALL
            .into_iter()
            .find(|model| model.facts().keyword == text)
            .ok_or_else(|| UnknownModel(text.into()))
    }
}

impl TryFrom<String> for Model {
    type Error = UnknownModel;

    fn try_from(text: String) -> Result<Self, UnknownModel> {
        text.parse()
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
    pub fn resolve(self, host: &Host) -> Model {
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
    use crate::HostFamily;

    #[test]
    fn names_round_trip() {
        for model in Model::ALL {
            assert_eq!(model.to_string().parse(), Ok(model));
            let choice = ModelChoice::Only(model);
            assert_eq!(choice.to_string().parse(), Ok(choice));
            let json = serde_json::to_string(&model).unwrap();
            assert_eq!(json, format!("{:?}", model.to_string()));
            assert_eq!(serde_json::from_str::<Model>(&json).unwrap(), model);
        }
        assert_eq!("auto".parse(), Ok(ModelChoice::Auto));
        assert_eq!(ModelChoice::Auto.to_string(), "auto");
        assert!("auto".parse::<Model>().is_err());
        assert!("K8 ".parse::<ModelChoice>().is_err());
    }

    #[test]
    fn the_error_names_them_all() {
        let text = "z80".parse::<ModelChoice>().unwrap_err().to_string();
        assert!(Model::ALL.iter().all(|model| text.contains(model.facts().keyword)), "{text}");
    }

    #[test]
    fn auto_is_the_nearest() {
        let host = HostFamily::Intel.processor();
        assert_eq!(ModelChoice::Auto.resolve(&host), Model::IntelV4);
        assert_eq!(ModelChoice::Only(Model::K7).resolve(&host), Model::K7);
    }
}
