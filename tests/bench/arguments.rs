//! The command line.

use anyhow::{Context, Result, bail};

/// See the program.
pub(crate) struct Arguments {
    pub(crate) pmu: String,
    pub(crate) kernel: String,
    pub(crate) json: Option<String>,
    pub(crate) lab: bool,
    pub(crate) operations: Vec<String>,
}

impl Arguments {
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let mut arguments = Self {
            pmu: "amd-core".to_owned(),
            kernel: "6.12".to_owned(),
            json: None,
            lab: false,
            operations: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--pmu" => arguments.pmu = value()?,
                "--kernel" => arguments.kernel = value()?,
                "--json" => arguments.json = Some(value()?),
                "--lab" => arguments.lab = true,
                word if word.starts_with('-') => bail!("there is no option {word}"),
                operation => arguments.operations.push(operation.to_owned()),
            }
        }
        Ok(arguments)
    }
}
