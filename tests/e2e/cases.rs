//! The cases, each with its two halves, and those of the command line alone.

pub(crate) mod dump;
pub(crate) mod exact;
pub(crate) mod kvm;
pub(crate) mod library;
pub(crate) mod long_runs;
pub(crate) mod older;
pub(crate) mod overflows_by_nmi;
pub(crate) mod perf;
pub(crate) mod perfex;
pub(crate) mod pmctest;
pub(crate) mod side_by_side;
pub(crate) mod statuses;
pub(crate) mod switches;

mod benchmark;
mod counted;
mod host_module;
mod killed;
mod lab_counters;
mod models;
mod power;
mod refusals;
mod streams;
mod test_kernel;

use anyhow::Result;

pub(crate) use counted::agree;
pub(crate) use refusals::dump_of_gone;

/// A test without a guest half.
type CommandLineTest = fn() -> Result<()>;

/// Tests that make their own machine, or none.
pub(crate) const COMMAND_LINE: &[(&str, CommandLineTest)] = &[
    ("lab-counters", lab_counters::count_exactly),
    ("benchmark", benchmark::costs),
    ("host-module-alone", host_module::by_itself),
    ("host-module-sleep", host_module::across_sleep),
    ("host-module-and-perf", host_module::conflicts),
    ("host-module-chosen", host_module::chosen),
    ("host-module-late-first-count", host_module::late_first_count),
    ("host-module-global", host_module::global),
    ("host-module-intel", host_module::intel),
    ("kill-at-random", killed::at_random),
    ("kvm-same-numbers", kvm::same_numbers),
    ("kvm-beside-perf", kvm::beside_perf),
    ("kvm-refusals", kvm::refusals),
    ("streams", streams::streams),
    ("test-kernel", test_kernel::test_kernel),
    ("command-not-found", streams::command_not_found),
    ("pmu-generic", models::generic),
    ("pmu-of-old", models::old),
    ("pmu-none", models::none),
    ("power-off-by-the-command", power::off_by_the_command),
    ("power-off-at-the-shell", power::off_at_the_shell),
    ("restart-at-the-shell", power::restart_at_the_shell),
    ("panic-at-boot", power::panic_at_boot),
    ("insistence", power::insistence),
    ("kernel-missing", refusals::kernel_missing),
    ("kernel-truncated", refusals::kernel_truncated),
    ("kernel-no-kernel", refusals::kernel_no_kernel),
    ("no-vcpus", refusals::no_vcpus),
    ("too-many-vcpus", refusals::too_many_vcpus),
    ("too-much-memory", refusals::too_much_memory),
    ("copy-missing", refusals::copy_missing),
    ("dump-of-nobody", refusals::dump_of_nobody),
];

/// Tests of that kind that are run by hand alone, and why.
pub(crate) const NOT_RUN: &[(&str, &str)] = &[(
    "host-module-revoked-while-loading",
    "the lab's emulator loses a processor's flags in it, and sometimes the machine; tests/lab/README.md says how to run it",
)];
