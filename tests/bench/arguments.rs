//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::cost::Side;
use crate::counters::Instrument;
use crate::setting::Setting;
use crate::system::System;

/// What counters cost: instructions executed and exits, by operation, in one run
#[derive(Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) part: Option<Part>,
    #[command(flatten)]
    pub(crate) all: Arguments,
}

/// The whole benchmark.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Operations to measure, by the beginning of their names; all without
    pub(crate) operations: Vec<String>,
    /// The PMU of the guest
    #[arg(long, default_value = "amd-core", value_name = "MODEL")]
    pub(crate) pmu: String,
    /// The guest's kernel
    #[arg(long, default_value = "6.12", value_name = "SERIES")]
    pub(crate) kernel: String,
    /// What to compare
    #[arg(long, value_delimiter = ',', value_name = "SYSTEM,..", default_values_t = System::ALL.iter().copied())]
    pub(crate) systems: Vec<System>,
    /// In which settings; all without
    #[arg(long, value_delimiter = ',', value_name = "SETTING,..")]
    pub(crate) settings: Vec<Setting>,
    /// Write the figures to a file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Figures of earlier runs (--json) to go with those of this one, which replace them system by system
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Vec<PathBuf>,
    /// Measure no operation; only show and write those of an earlier run again
    #[arg(long, requires = "from")]
    pub(crate) again: bool,
    /// Measure only the runs that the figures of --json and --from have not as a whole
    #[arg(long, conflicts_with = "again")]
    pub(crate) resume: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
    /// How the figures came about, if not by one run
    #[arg(long, value_name = "TEXT")]
    pub(crate) remark: Option<String>,
    /// Write the summary as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Measure how machines start, and what their VMMs take, one and many, too
    #[arg(long)]
    pub(crate) start: bool,
    /// Measure in the lab machine
    #[arg(long)]
    pub(crate) lab: bool,
    /// Lab machines at once, each of which keeps one of this host's processors busy and takes up to 3.5 GB; without, as many as it has
    #[arg(long, value_name = "NUMBER")]
    pub(crate) jobs: Option<usize>,
}

/// More have nothing to do in the end: one system's runs are long.
const MOST: usize = 4;

impl Arguments {
    /// Lab machines at once.
    pub(crate) fn jobs(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.jobs.unwrap_or(processors.min(MOST)).max(1)
    }
}

/// What this program does on the machine that is measured, where it sends itself.
#[derive(Subcommand)]
pub(crate) enum Part {
    /// Run a command that gives marks; write what was counted between them
    Measure {
        /// Whose instructions to count
        side: Side,
        /// What to count by
        #[arg(long, value_name = "INSTRUMENT", default_value = "perf")]
        by: Instrument,
        /// Interrupt this host's processors all the time
        #[arg(long)]
        interrupted: bool,
        /// A word of the command of idle machines, to be started before
        #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
        beside: Vec<String>,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<String>,
    },
    /// Start machines that do nothing; write what they take
    Idle {
        /// How many, one number after the other
        #[arg(long = "number", required = true, value_delimiter = ',', value_name = "NUMBER,..")]
        numbers: Vec<usize>,
        /// perfvisor, to dump the first of them by
        #[arg(long, value_name = "FILE")]
        dump: Option<String>,
        /// The command and its arguments; {} in it is the machine's number
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<String>,
    },
    /// Run a VMM until it says something, or to its end; write what that cost
    Start {
        /// What it says
        #[arg(long, value_name = "WORDS")]
        until: Option<String>,
        /// Give it a terminal as its standard input
        #[arg(long)]
        terminal: bool,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn operations_and_parts() {
        let all = CommandLine::parse_from(["bench", "spin", "--lab", "switch/"]);
        assert!(all.part.is_none() && all.all.lab);
        assert_eq!(all.all.operations, ["spin", "switch/"]);
        let part = CommandLine::parse_from(["bench", "measure", "guest", "--", "run", "--lab"]);
        let Some(Part::Measure { side: Side::Guest, command, .. }) = part.part else { panic!("no part") };
        assert_eq!(command, ["run", "--lab"]);
    }
}
