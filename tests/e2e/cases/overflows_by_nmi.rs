//! Overflows by NMI behind the paravirtual interface: the driver names no vector in a kernel with PREEMPT_RT, nor in one that may
//! stop the tick of a busy CPU. The checks of `pmctest` that get there.

use std::time::Duration;

use super::pmctest;
use crate::case::{Case, Setting, Test, no_copies, nothing_asked};

pub(crate) const CASE: Case = Case {
    name: "pmctest",
    copies: no_copies,
    limit: Duration::from_secs(300),
    guest,
    answer: nothing_asked,
    tests,
};

/// For the kernel: so it is such a one, whichever CPUs it has.
pub(crate) const APPEND: &str = "nohz_full=1";

/// Beginnings of their names.
const CHECKS: [&str; 3] = ["nmi-", "overflow-", "samples-"];
/// So many NMIs are the overflows', at least.
const NMIS: u32 = 500;

/// With proof that it was NMIs.
fn guest(setting: &Setting) -> String {
    let checks = pmctest::command(setting, &CHECKS);
    format!(
        "{checks}; status=$?; set -- $(grep NMI: /proc/interrupts); \
         if [ $(($2 + $3)) -lt {NMIS} ]; then echo \"FAIL status: $(($2 + $3)) NMIs\"; status=1; fi; (exit $status)"
    )
}

fn tests() -> Vec<Test> {
    pmctest::tests_of(|name| CHECKS.iter().any(|check| name.starts_with(check)))
}
