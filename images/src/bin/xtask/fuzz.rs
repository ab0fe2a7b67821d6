//! `cargo xtask fuzz`: builds the engine's fuzz targets and runs one. See `vpmu/fuzz/README.md`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use images::layout::Layout;
use images::process::Program;
use images::progress::Step;
use images::setup::repository;

use crate::cargo::cargo;

/// The targets, and what each drives.
pub(crate) const TARGETS: [(&str, &str); 3] = [
    ("registers", "reads and writes of any MSR"),
    ("doorbell", "operations with anything in the vCPU's page"),
    ("pages", "any page registered, any address named"),
];

/// What makes a program tell libFuzzer which way it went. There is no sanitizer among it, so that the stable compiler
/// will do. In the environment, not in a configuration file: it has to replace the repository's flags, because a
/// static program has no functions that libFuzzer could put its own in front of.
const FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Run a fuzz target of the engine
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Which one.
    #[arg(value_parser = TARGETS.map(|(name, _)| name))]
    target: String,

    /// What libFuzzer is given: a folder for its corpus, and options such as -max_total_time=3600.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Builds, and runs the target until it ends; false when it found something.
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let layout = Layout::open()?;
    if let Some(reason) = missing() {
        bail!("{reason}");
    }
    build(&layout)?;
    let program = program(&arguments.target);
    let status = Command::new(&program).args(&arguments.arguments).status();
    Ok(status.with_context(|| format!("cannot run {}", program.display()))?.success())
}

/// What the build needs and this machine does not have.
pub(crate) fn missing() -> Option<String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let works = Program::new(&compiler).arg("--version").output().is_ok();
    (!works).then(|| format!("libFuzzer is C++ and there is no `{compiler}`; install the package g++"))
}

/// Builds all targets.
pub(crate) fn build(layout: &Layout) -> Result<()> {
    let step = Step::begin("build the fuzz targets");
    let build = cargo("build").args(["--release", "--color=never", "--manifest-path=vpmu/fuzz/Cargo.toml"]);
    let build = build.arg("--target-dir=target/fuzz").env("RUSTFLAGS", FLAGS.join(" "));
    let build = build.without_env("CARGO_ENCODED_RUSTFLAGS");
    build.log(layout.log("fuzz-build")).watch(|line| step.at(line.trim()))?;
    step.done("");
    Ok(())
}

/// A target that has been built.
pub(crate) fn program(target: &str) -> PathBuf {
    repository().join("target/fuzz/x86_64-unknown-linux-gnu/release").join(target)
}
