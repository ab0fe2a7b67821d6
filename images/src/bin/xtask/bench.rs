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
    /// Operations to measure, by the beginning of their names; all without
    operations: Vec<String>,
    /// The PMU of the guest
    #[arg(long, default_value = "amd-core")]
    pmu: String,
    /// The guest's kernel: 6.1 or 6.12
    #[arg(long, default_value = "6.12")]
    kernel: String,
    /// What to compare, of perf, module, kvm, qemu and none: perfvisor by its sources, QEMU with KVM's own vPMU (its packages
    /// are fetched for it), and no PMU at all
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SYSTEM,..",
        default_value = "perf,module,kvm,qemu,none"
    )]
    systems: Vec<String>,
    /// Where to measure, of alone, compared, two-vcpus, four-vcpus, interrupted and crowd: one vCPU, the same counted from
    /// outside, too, more vCPUs, a host that is interrupted all the time, a host with many machines; all without
    #[arg(long, value_delimiter = ',', value_name = "SETTING,..", conflicts_with = "write")]
    settings: Vec<String>,
    /// Measure how machines start, and what their VMMs take, one and many, too
    #[arg(long)]
    start: bool,
    /// Measure all, and write BENCHMARKS.md and docs/benchmarks in this repository; --json and --page choose other files for the latter
    #[arg(long, conflicts_with = "operations")]
    write: bool,
    /// Figures of earlier runs (--json) to go with those of this one, which replace them system by system
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Measure no operation; only show and write those of an earlier run again
    #[arg(long, requires = "from")]
    again: bool,
    /// Measure only what the figures of --json and --from have not as a whole: a run that was interrupted goes on
    #[arg(long, conflicts_with = "again")]
    resume: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Write the figures to a file as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Lab machines at once, each of which keeps one processor busy and takes up to 3.5 GB; without, as many as there are processors, up to 4
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// Measure on this host: it needs counters and a KVM that boots Linux
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
