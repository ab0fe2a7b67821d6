//! The host's counters: by the kernel module, and by perf.

use vpmu::HostFamily;
use vpmu::module::{self, EMULATED, Info, OpenError};
use vpmu::perf::{self, ProbeError};

use super::finding::{Finding, Verdict, finding};
use crate::host::pmu_holders;
use crate::host::source::{auto_may_be_module, remedy};

/// Guests can be counted if one of the two sources works.
pub(super) fn counters() -> Vec<Finding> {
    // Given back at once, so that perf can be asked.
    let module = module::hold().map(|hold| hold.info());
    let works = module.is_ok();
    vec![of_module(module, HostFamily::detect()), of_perf(works), paranoid(), watchdog()]
}

/// What `--source auto` makes of it.
fn of_module(module: Result<Info, OpenError>, family: HostFamily) -> Finding {
    const SUBJECT: &str = "kernel module";
    let perf = |what| finding(Verdict::Note, SUBJECT, format!("{what}: runs count with perf"));
    match module {
        Ok(info) => {
            let emulated = match info.flags & EMULATED {
                0 => "; instructions that KVM executes for guests are not counted (see dmesg)",
                _ => "",
            };
            let has = format!(
                "perfctr_host programs {} counters of {} bits itself{emulated}",
                info.counters, info.width
            );
            if auto_may_be_module(family) {
                let what = format!("{has}: runs count with it, and with perf when perf holds them first");
                finding(Verdict::Good, SUBJECT, what)
            } else {
                perf(format!("{has}, but was never tried on Intel processors"))
                    .remedy("to try it: --source module")
            }
        }
        Err(e @ OpenError::NoModule) => {
            perf(e.to_string()).remedy(format!("to make switches and overflows cheaper: {}", remedy(&e)))
        }
        Err(e) => perf(e.to_string()).remedy(remedy(&e)),
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
            "perfctr_host holds it for a running machine; perf gets it back when that ends",
        ),
        Err(e) => {
            let verdict = if module_works { Verdict::Note } else { Verdict::Missing };
            finding(verdict, SUBJECT, format!("perf: {e}")).remedy(perf_remedy(&e))
        }
    }
}

fn perf_remedy(error: &ProbeError) -> &'static str {
    match error {
        ProbeError::NoPmu => "use a host, or a kind of virtual machine, with a PMU; the lab machine has one",
        ProbeError::NotAllowed => "sudo sysctl kernel.perf_event_paranoid=1",
        ProbeError::Taken if pmu_holders::module_is_used() => {
            "perfctr_host holds them for other machines: join the group that owns /dev/perfctr-host and count with it, or end those machines"
        }
        ProbeError::Taken => {
            "end the other users of perf, and switch the watchdog off: sudo sysctl kernel.nmi_watchdog=0"
        }
        ProbeError::NoGuestOnly => "load KVM's module first: perf excludes the host only where KVM can run",
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
            format!(
                "perf_event_paranoid is {level}, and root may count guests: vCPUs keep CAP_{} for it",
                if level > 2 { "SYS_ADMIN" } else { "PERFMON" }
            ),
        )
        .remedy("to leave them none: sudo sysctl kernel.perf_event_paranoid=1"),
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
            "on: it holds one counter of every CPU, and keeps perfctr_host from using any",
        )
        .remedy("sudo sysctl kernel.nmi_watchdog=0")
    } else {
        finding(Verdict::Good, SUBJECT, "off: every counter is free")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_source_auto_is() {
        let info = Info { version: 2, counters: 6, width: 48, flags: EMULATED, evntsel: 0 };
        let what = |module, family| of_module(module, family).what;
        let good = what(Ok(info), HostFamily::Zen);
        assert!(good.contains("6 counters of 48 bits") && good.contains("runs count with it"), "{good}");
        let perf = "runs count with perf";
        assert!(!good.contains("not counted"), "{good}");
        let older = what(Ok(Info { flags: 0, ..info }), HostFamily::Zen);
        assert!(older.contains("not counted"), "{older}");
        let intel = what(Ok(info), HostFamily::Intel);
        assert!(intel.contains("never tried") && intel.ends_with(perf), "{intel}");
        let busy = what(Err(OpenError::Busy), HostFamily::Zen);
        assert!(busy.contains("perf has") && busy.ends_with(perf), "{busy}");
    }
}
