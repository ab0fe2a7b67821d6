//! Capabilities, of which a machine that runs needs one at most.

use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::role::Counting;

/// Who may have perf events.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// What a vCPU's thread of this process keeps.
pub(super) fn kept(counting: Counting) -> CapabilitySet {
    let now = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective & sets.permitted);
    match counting {
        // Perf events are opened when the guest programs them, and each time the kernel asks whether that is allowed.
        Counting::Perf if !now.is_empty() => now & needed(std::fs::read_to_string(PARANOID).ok().as_deref()),
        // All that counts is open.
        Counting::Perf | Counting::Nothing | Counting::Module | Counting::Kvm => CapabilitySet::empty(),
    }
}

/// For events of a guest's kernel mode, at this `kernel.perf_event_paranoid`.
fn needed(paranoid: Option<&str>) -> CapabilitySet {
    match paranoid.and_then(|text| text.trim().parse::<i32>().ok()) {
        Some(..=1) => CapabilitySet::empty(),
        // A level of Debian's and Ubuntu's kernels: perf_event_open(2) needs CAP_SYS_ADMIN there. With CAP_PERFMON alone,
        // Debian's 6.1.192 and 6.12.117 answer EACCES, for user mode too.
        Some(3..) => CapabilitySet::SYS_ADMIN,
        _ => CapabilitySet::PERFMON,
    }
}

/// By name.
pub(super) fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names().map(|(name, _)| name.to_owned()).collect()
}

/// In the calling thread.
pub(super) fn drop_all_but(kept: CapabilitySet) -> io::Result<()> {
    let now = capabilities(None)?;
    let left = now.permitted & now.effective & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: left, permitted: left, inheritable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perf_events_need() {
        let names = |paranoid| names(needed(paranoid));
        assert!(names(Some("-1\n")).is_empty() && names(Some("1\n")).is_empty());
        assert_eq!(
            (names(Some("2\n")), names(None)),
            (vec!["PERFMON".to_owned()], vec!["PERFMON".to_owned()])
        );
        assert_eq!(names(Some("3\n")), ["SYS_ADMIN"]);
    }

    #[test]
    fn a_thread_gives_up_all_but_what_it_keeps() {
        let given_up = || {
            drop_all_but(CapabilitySet::PERFMON).unwrap();
            let sets = capabilities(None).unwrap();
            assert_eq!(sets.effective - CapabilitySet::PERFMON, CapabilitySet::empty());
            assert_eq!((sets.permitted, sets.inheritable), (sets.effective, CapabilitySet::empty()));
            drop_all_but(CapabilitySet::empty()).unwrap();
            assert_eq!(capabilities(None).unwrap().permitted, CapabilitySet::empty());
        };
        std::thread::spawn(given_up).join().unwrap();
    }
}
