//! The guest driver on a door without the newer parts: what it does instead, by the checks of `pmctest` that get there.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::pmctest;
use crate::case::{Case, Setting, Test, Waiting};
use crate::dump::Dump;

pub(crate) const CASE: Case = Case { name: "pmctest", limit: Duration::from_secs(300), guest, answer, tests };

/// Beginnings of their names. Controls are three operations there, and overflows NMIs.
const CHECKS: [&str; 7] = ["control-", "door-", "nmi-", "overflow-", "samples-", "state-", "tracee-"];

fn guest(setting: &Setting) -> String {
    format!("{}; status=$?; ask door; exit $status", pmctest::command(setting, &CHECKS))
}

/// It was that door.
fn answer(waiting: &Waiting<'_>) -> Result<()> {
    for vcpu in Dump::of(waiting.machine)?.vcpus {
        let door = vcpu.pmu.door;
        ensure!(door.control == 0 && door.update_control > 100, "vCPU {}: {door:?}", vcpu.index);
    }
    Ok(())
}

fn tests() -> Vec<Test> {
    pmctest::tests_of(|name| CHECKS.iter().any(|check| name.starts_with(check)))
}
