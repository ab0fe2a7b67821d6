//! The host's counters: by the kernel module, and by perf.

use vpmu::module::{self, OpenError};
use vpmu::perf::{self, ProbeError};

use super::{Finding, Verdict, finding};
use crate::host::pmu_holders;
use crate::host::source::remedy;

/// Guests can be counted if one of the two sources works.
pub(super) fn counters() -> Vec<Finding> {
    let module = match module::hold() {
        // Given back at once, so that perf can be asked.
        Ok(held) => Ok(held.info()),
        Err(e) => Err(e),
    };
    let works = module.is_ok();
    vec![of_module(module), of_perf(works), paranoid(), watchdog()]
}

fn of_module(module: Result<module::Info, OpenError>) -> Finding {
    const SUBJECT: &str = "kernel module";
    match module {
        Ok(info) => finding(
            Verdict::Good,
            SUBJECT,
            format!(
                "perfctr_host programs {} counters of {} bits itself; --source module uses it",
                info.counters, info.width
            ),
        ),
        Err(e @ OpenError::NoModule) => finding(Verdict::Note, SUBJECT, format!("{e}: runs count with perf"))
            .remedy(format!("if switches and overflows shall cost less: {}", remedy(&e))),
        Err(e) => finding(Verdict::Note, SUBJECT, format!("{e}: runs count with perf")).remedy(remedy(&e)),
    }
}

fn of_perf(module_works: bool) -> Finding {
    const SUBJECT: &str = "PMU";
    match perf::probe() {
        Ok(access) if access.rdpmc => {
            finding(Verdict::Good, SUBJECT, "perf counts guest instructions; read without a system call")
        }
        Ok(_) => {
            finding(Verdict::Good, SUBJECT, "perf counts guest instructions; each reading is a system call")
                .remedy("echo 1 | sudo tee /sys/bus/event_source/devices/cpu/rdpmc")
        }
        Err(_) if module_works && pmu_holders::module_is_used() => finding(
            Verdict::Good,
            SUBJECT,
            "perfctr_host has it for a running machine; perf has it again when that ends",
        ),
        Err(e) => {
            let verdict = if module_works { Verdict::Note } else { Verdict::Missing };
            finding(verdict, SUBJECT, format!("perf: {e}")).remedy(perf_remedy(&e))
        }
    }
}

fn perf_remedy(error: &ProbeError) -> &'static str {
    match error {
        ProbeError::NoPmu => {
            "none here: choose a machine, or a kind of virtual machine, with a PMU; the lab has one"
        }
        ProbeError::NotAllowed => "sudo sysctl kernel.perf_event_paranoid=1",
        ProbeError::Taken if pmu_holders::module_is_used() => {
            "perfctr_host has them for other machines: join the group that owns /dev/perfctr-host and count with it, or end those"
        }
        ProbeError::Taken => {
            "end the other users of perf, and switch the watchdog off: sudo sysctl kernel.nmi_watchdog=0"
        }
        ProbeError::NoGuestOnly => {
            "load KVM's module before: perf leaves the host out only where KVM can run"
        }
        ProbeError::NoPerf => "use a kernel with CONFIG_PERF_EVENTS",
        ProbeError::Os(_) => "see the error's meaning in perf_event_open(2)",
    }
}

fn paranoid() -> Finding {
    const SUBJECT: &str = "perf permissions";
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    match level.ok().and_then(|level| level.trim().parse::<i64>().ok()) {
        None => finding(Verdict::Note, SUBJECT, "this kernel has no perf events"),
        Some(level) if level <= 1 => finding(
            Verdict::Good,
            SUBJECT,
            format!("perf_event_paranoid is {level}: every user may count guests"),
        ),
        Some(level) if rustix::process::geteuid().is_root() => finding(
            Verdict::Good,
            SUBJECT,
            format!("perf_event_paranoid is {level}, and root may count guests"),
        ),
        Some(level) => finding(
            Verdict::Note,
            SUBJECT,
            format!("perf_event_paranoid is {level}: guest kernel code can be counted only with CAP_PERFMON"),
        )
        .remedy("sudo sysctl kernel.perf_event_paranoid=1"),
    }
}

fn watchdog() -> Finding {
    const SUBJECT: &str = "NMI watchdog";
    if pmu_holders::watchdog_runs() {
        finding(
            Verdict::Note,
            SUBJECT,
            "on: it holds one counter of every CPU, and perfctr_host off them all",
        )
        .remedy("sudo sysctl kernel.nmi_watchdog=0")
    } else {
        finding(Verdict::Good, SUBJECT, "off: every counter is free")
    }
}
