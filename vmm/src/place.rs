//! Where a command runs: on this host, or in the lab machine.

use crate::host::Obstacle;

/// Set in the lab machine, so that perfvisor does not look for a lab in the lab.
pub const INSIDE_LAB: &str = "PERFVISOR_INSIDE_LAB";

/// Whether this process runs in the lab machine.
pub fn inside_lab() -> bool {
    std::env::var_os(INSIDE_LAB).is_some()
}

/// Why guests with these needs cannot run on this host, if they cannot. Linux needs speed to boot at all; a test kernel
/// of a few thousand instructions does not.
pub fn obstacle(needs_counters: bool, needs_speed: bool) -> Option<Obstacle> {
    match crate::host::open_kvm() {
        Err(Obstacle::SlowKvm(_)) if !needs_speed => {}
        Err(obstacle) => return Some(obstacle),
        Ok(_) => {}
    }
    if !needs_counters {
        return None;
    }
    if vpmu::module::hold().is_ok() {
        return None;
    }
    vpmu::perf::probe().err().map(|e| Obstacle::NoPmu(e.to_string()))
}
