//! The boots, and which cases each runs.

use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail, ensure};
use libtest_mimic::Trial;

use crate::attempt::{attempt, failed};
use crate::boot;
use crate::case::{Case, Test};
use crate::cases::{
    self, dump, exact, kvm, long_runs, older, overflows_by_nmi, perf, perfex, pmctest, side_by_side,
    statuses, switches,
};
use crate::guest::{Guest, Outcome};
use crate::summary;
use tests::counts;

/// How a guest ends that the lab has lost: reset, standing still, or with the machine itself.
const LOST: [&str; 3] = ["triple fault", "did not end within", "the machine went down"];

impl Guest {
    /// A guest for the cases of [`perf`].
    const fn with_perf(
        name: &'static str,
        pmu: &'static str,
        kernel: &'static str,
        vcpus: u32,
        source: &'static str,
    ) -> Self {
        Self {
            name,
            kernel,
            vcpus,
            pmu,
            source,
            append: "",
            cases: perf::CASES,
            last_command: "exit 0",
            status: 0,
            only_perfex: false,
            outcome: OnceLock::new(),
        }
    }

    /// A guest with KVM's own vPMU.
    const fn with_kvms_pmu(name: &'static str, kernel: &'static str, vcpus: u32) -> Self {
        Self {
            name,
            kernel,
            vcpus,
            pmu: "auto",
            source: "kvm",
            append: "",
            cases: &[exact::CASE, side_by_side::CASE, kvm::DUMP, cases::library::CASE, kvm::PMCTEST],
            last_command: "exit 0",
            status: 0,
            only_perfex: false,
            outcome: OnceLock::new(),
        }
    }

    /// A guest for the cases of [`long_runs`].
    const fn of_long_runs(name: &'static str, kernel: &'static str, source: &'static str) -> Self {
        Self {
            name,
            kernel,
            vcpus: 4,
            pmu: "k8",
            source,
            append: DEBUGGING,
            cases: long_runs::CASES,
            last_command: "exit 0",
            status: 0,
            only_perfex: false,
            outcome: OnceLock::new(),
        }
    }

    /// Boots it. The lab's emulator once lost a guest now and then, at no particular place (see `tests/lab/README.md`,
    /// "repairs"). Should it lose one again, that is booted once more and the summary says so.
    fn boot(&'static self) -> Result<Outcome> {
        let outcome = boot::run(self)?;
        let lost = |failure: &&String| LOST.iter().any(|how| failure.contains(how));
        let Some(failure) = outcome.failure.as_ref().filter(lost) else { return Ok(outcome) };
        summary::retried(self.name, failure.lines().next().unwrap_or_default());
        eprintln!("{failure}");
        boot::run(self)
    }

    /// Boots it, and keeps what came out for its trials.
    pub(crate) fn run(&'static self) {
        let outcome = attempt(|| self.boot()).map_err(|error| format!("{error:#}"));
        // It is set here alone, once.
        let _ = self.outcome.set(outcome.inspect(|outcome| outcome.note_times(self.name)));
    }
}

/// What Debian's kernels have to find mistakes with: allocations with red zones and poison, guard pages around some of
/// them (6.12), and preemption wherever it is possible.
const DEBUGGING: &str = "slub_debug=FZPU kfence.sample_interval=20 preempt=full";

pub(crate) static ALL: [Guest; 14] = [
    Guest {
        name: "test-6.12-two-vcpus",
        kernel: "6.12",
        vcpus: 2,
        pmu: "k8",
        source: "perf",
        append: "",
        cases: &[
            exact::CASE,
            side_by_side::CASE,
            statuses::CASE,
            dump::CASE,
            pmctest::CASE,
            perfex::CASE,
            cases::library::CASE,
            Case { name: "exact-after-garbage", ..exact::CASE },
        ],
        last_command: "exit 0",
        status: 0,
        only_perfex: false,
        outcome: OnceLock::new(),
    },
    Guest {
        name: "test-6.1-one-vcpu",
        kernel: "6.1",
        vcpus: 1,
        pmu: "auto",
        source: "module",
        append: "",
        cases: &[exact::CASE, side_by_side::CASE, switches::CASE],
        last_command: "exit 7",
        status: 7,
        only_perfex: true,
        outcome: OnceLock::new(),
    },
    Guest {
        name: "test-6.1-two-vcpus",
        kernel: "6.1",
        vcpus: 2,
        pmu: "k8",
        source: "perf",
        append: "",
        cases: &[side_by_side::CASE, dump::CASE, pmctest::CASE, older::CASE],
        last_command: "kill -KILL $$",
        status: 128 + 9,
        only_perfex: false,
        outcome: OnceLock::new(),
    },
    Guest {
        name: "overflows-by-nmi-6.12",
        kernel: "6.12",
        vcpus: 2,
        pmu: "k8",
        source: "perf",
        append: overflows_by_nmi::APPEND,
        cases: &[overflows_by_nmi::CASE],
        last_command: "exit 0",
        status: 0,
        only_perfex: false,
        outcome: OnceLock::new(),
    },
    Guest::with_kvms_pmu("kvm-6.12", "6.12", 2),
    Guest::with_kvms_pmu("kvm-6.1", "6.1", 1),
    Guest::of_long_runs("long-runs-6.12", "6.12", "module"),
    Guest::of_long_runs("long-runs-6.1", "6.1", "perf"),
    Guest::with_perf("perf-k7", "k7", "6.1", 1, "module"),
    Guest::with_perf("perf-amd-core", "amd-core", "6.12", 2, "perf"),
    Guest::with_perf("perf-amd-v2", "amd-v2", "6.12", 1, "perf"),
    Guest::with_perf("perf-pentium-m", "pentium-m", "6.1", 2, "module"),
    Guest::with_perf("perf-intel-v2", "intel-v2", "6.12", 1, "perf"),
    Guest::with_perf("perf-intel-v4", "intel-v4", "6.1", 2, "perf"),
];

/// One test for each test of each case, and one for the guest's end.
/// Those that are not run, of the wanted ones, are named with the reason.
pub(crate) fn trials(guest: &'static Guest, is_wanted: impl Fn(&str) -> bool) -> Vec<Trial> {
    let mut trials = Vec::new();
    let not_run = pmctest::not_run(guest.setting());
    for case in guest.cases {
        for test in (case.tests)() {
            let separator = if test.name.is_empty() { "" } else { "::" };
            let name = format!("{}::{}{separator}{}", guest.name, case.name, test.name);
            let reason = not_run.get(&test.name).filter(|_| case.name == pmctest::CASE.name);
            if let Some(reason) = reason
                && is_wanted(&name)
            {
                println!("not run: {name}: {reason}");
            }
            let trial = Trial::test(name, move || judge(guest, case, &test).map_err(failed));
            trials.push(trial.with_ignored_flag(reason.is_some()));
        }
    }
    trials.push(Trial::test(format!("{}::ends", guest.name), move || ends_well(guest).map_err(failed)));
    trials
}

fn judge(guest: &'static Guest, case: &Case, test: &Test) -> Result<()> {
    let outcome = guest.outcome()?;
    match outcome.cases.get(case.name) {
        Some(evidence) => evidence.judge(test),
        None => bail!("{}", outcome.failure.as_deref().unwrap_or("the case did not run")),
    }
}

/// The exit status is the command's, the report is there and complete, and agrees with what the guest attributed.
fn ends_well(guest: &'static Guest) -> Result<()> {
    let outcome = guest.outcome()?;
    if let Some(failure) = &outcome.failure {
        bail!("{failure}");
    }
    ensure!(
        outcome.status == Some(guest.status),
        "ended with {:?}, expected {}",
        outcome.status,
        guest.status
    );
    let report = outcome.report.as_ref().map_err(|error| anyhow!("{error}")).context("the final report")?;
    ensure!(report.name == guest.name, "the report is of '{}'", report.name);
    ensure!(report.vcpus.len() == guest.vcpus as usize, "the report has {} vCPUs", report.vcpus.len());
    report.is_by(guest.source)?;
    if guest.only_perfex {
        report.is_complete()?;
        report.wrote_little()?;
        let printed = counts::parse(&outcome.transcript)?;
        cases::agree(report, &printed)?;
        let (host, guest) = (report.tsc(), printed.iter().map(|counts| counts.tsc).sum::<u64>());
        ensure!(host == guest, "the host counted {host} TSC cycles, the guest attributed {guest}");
    }
    outcome.gone.as_ref().map_err(|error| anyhow!("{error}")).copied()
}
