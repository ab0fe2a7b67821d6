//! `cargo xtask bench`: what counters cost, in instructions executed and exits.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use images::layout::Layout;
use images::setup::repository;
use images::{alioth, qemu};

use crate::{cargo, setup};

/// Measure what operations on counters cost guest and host, in the lab machine: instructions executed, and exits
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Operations to measure, by the beginning of their names [default: all]
    operations: Vec<String>,
    /// The PMU of the guest
    #[arg(long, default_value = "amd-core")]
    pmu: String,
    /// The guest's kernel: 6.1 or 6.12
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// What to compare: perfvisor with the source perf, module or kvm, or without a PMU (none); qemu is Debian's QEMU with
    /// KVM's own vPMU, whose packages are fetched
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SYSTEM,..",
        default_value = "perf,module,kvm,qemu,none"
    )]
    systems: Vec<String>,
    /// Where to measure: alone (one vCPU), compared (the same, also counted from outside), two-vcpus, four-vcpus, interrupted
    /// (a host that is interrupted all the time), crowd (a host with many machines) [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SETTING,..", conflicts_with = "write")]
    settings: Vec<String>,
    /// Also measure how machines start, and how much memory one and many of them take
    #[arg(long)]
    start: bool,
    /// Measure everything, and write BENCHMARKS.md and docs/benchmarks in this repository; --json and --page choose other
    /// files instead of the latter
    #[arg(long, conflicts_with = "operations")]
    write: bool,
    /// Add the figures of an earlier run (--json); those of this run replace them, system by system
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Measure nothing; show and write the figures of earlier runs (--from) again
    #[arg(long, requires = "from")]
    again: bool,
    /// Continue a run that was interrupted: measure only what the figures of --json and --from lack
    #[arg(long, conflicts_with = "again")]
    resume: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write the figures to a file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Number of lab machines at once; each keeps one processor busy and takes up to 3.5 GB [default: one for each processor,
    /// at most 4]
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// Measure on this host, which needs counters and a KVM that boots Linux
    #[arg(long)]
    here: bool,
}

/// Measures and prints; false when it failed, which it has said.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    setup::run(&setup::Arguments { refresh: false })?;
    if arguments.systems.iter().any(|system| system == "qemu") {
        let layout = Layout::open()?;
        qemu::setup(&layout, false)?;
        if let Err(error) = alioth::setup(&layout) {
            eprintln!("without Alioth: {error:#}");
        }
    }
    let bench = cargo::binaries()?.join("bench");
    println!();
    let mut command = Command::new(&bench);
    command.args(["--pmu", &arguments.pmu, "--kernel", &arguments.kernel]);
    command.args(["--systems", &arguments.systems.join(",")]);
    if !arguments.settings.is_empty() {
        command.args(["--settings", &arguments.settings.join(",")]);
    }
    let written = |file: &str| arguments.write.then(|| repository().join(file));
    let files = [
        ("--json", arguments.json.clone().or_else(|| written("docs/benchmarks/run.json"))),
        ("--page", arguments.page.clone().or_else(|| written("docs/benchmarks/run.html"))),
        ("--markdown", written("BENCHMARKS.md")),
    ];
    for (option, path) in &files {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    arguments.from.iter().for_each(|path| {
        command.arg("--from").arg(path);
    });
    command.args(arguments.again.then_some("--again"));
    command.args(arguments.resume.then_some("--resume"));
    command.args((arguments.start || arguments.write && !arguments.again).then_some("--start"));
    if let Some(jobs) = arguments.jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    command.args((!arguments.here).then_some("--lab")).args(&arguments.operations);
    let status = command.status().with_context(|| format!("cannot run {}", bench.display()))?;
    Ok(status.success())
}
