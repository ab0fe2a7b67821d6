//! Who has the host's counters, when somebody else wants them.

use std::fs;
use std::path::Path;

use vpmu::module::DEVICE;
use vpmu::module::global::{self, GLOBAL_DEVICE};

/// What the kernel's watchdog says of itself: "1" while it watches, which takes a counter of each processor.
const NMI_WATCHDOG: &str = "/proc/sys/kernel/nmi_watchdog";
/// What the link of a perf event's descriptor says.
const PERF_EVENT: &str = "anon_inode:[perf_event]";

/// Whether the NMI watchdog has a counter of each processor.
pub(crate) fn watchdog_runs() -> bool {
    fs::read_to_string(NMI_WATCHDOG).is_ok_and(|text| text.trim() == "1")
}

/// Whether some VMM has perfctr_host's counters.
pub(crate) fn module_is_used() -> bool {
    // Not by its uses: an open file takes nothing.
    fs::read_to_string("/sys/module/perfctr_host/parameters/taken").is_ok_and(|text| text.trim() == "Y")
}

/// Of global mode: who counts whole processors.
pub(crate) fn by_global() -> String {
    let holders = processes(Path::new("/proc"), GLOBAL_DEVICE);
    let who = if holders.is_empty() { "a process of root's".to_owned() } else { holders.join(", ") };
    format!("{who} does that (perfvisor dump --host): wait for its end, or end it")
}

/// For global mode: who has the counters, and the remedy.
pub(crate) fn of_global() -> String {
    if global::is_on() {
        return by_global();
    }
    match processes(Path::new("/proc"), DEVICE) {
        vmms if !vmms.is_empty() => {
            format!("machines count with the module: {}; wait for their end, or end them", vmms.join(", "))
        }
        _ => describe(watchdog_runs(), &processes(Path::new("/proc"), PERF_EVENT), "wait for its end"),
    }
}

/// Who may have the counters by perf, and the remedy. The kernel does not tell; these are all there can be.
pub(crate) fn of_perf() -> String {
    describe(watchdog_runs(), &processes(Path::new("/proc"), PERF_EVENT), "use --source perf")
}

fn describe(watchdog: bool, processes: &[String], or: &str) -> String {
    if watchdog {
        return "the NMI watchdog counts with it; switch it off: sudo sysctl kernel.nmi_watchdog=0"
            .to_owned();
    }
    match processes {
        [] => format!(
            "a process of another user, or KVM's vPMU for another virtual machine, counts with it: end that, or {or}"
        ),
        some => format!("perf events are open in {}: end what counts there, or {or}", some.join(", ")),
    }
}

/// Processes that this user may look at and that have `what` open, by name and number.
fn processes(proc: &Path, what: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let mut found: Vec<(u32, String)> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            has_open(&entry.path().join("fd"), what).then(|| (pid, name(&entry.path())))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(pid, name)| format!("{name} (pid {pid})")).collect()
}

fn has_open(descriptors: &Path, what: &str) -> bool {
    let Ok(entries) = fs::read_dir(descriptors) else { return false };
    entries.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == Path::new(what)))
}

fn name(process: &Path) -> String {
    fs::read_to_string(process.join("comm")).map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn processes_with_perf_events_are_named() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, name, target) in
            [("9", "perf", PERF_EVENT), ("10", "sh", "/dev/null"), ("self", "x", PERF_EVENT)]
        {
            let folder = proc.path().join(pid);
            fs::create_dir_all(folder.join("fd")).unwrap();
            fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            symlink(target, folder.join("fd/3")).unwrap();
        }
        assert_eq!(processes(proc.path(), PERF_EVENT), ["perf (pid 9)"]);
        assert!(processes(&proc.path().join("none"), PERF_EVENT).is_empty());
    }

    #[test]
    fn the_watchdog_is_named_first() {
        let some = ["perf (pid 9)".to_owned()];
        assert!(describe(true, &some, "or else").contains("nmi_watchdog=0"));
        assert!(describe(false, &some, "or else").contains("perf (pid 9)"));
        assert!(describe(false, &[], "or else").contains("another user"));
    }
}
