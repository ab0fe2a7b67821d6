//! Kernel mode: what a program executes there is not known beforehand, but with it in user mode it is all.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::printed::{self, counts, stat};
use super::{family, programs};
use crate::case::{Case, Evidence, Setting, nothing_asked, single};

pub(crate) const CASE: Case = Case {
    name: "kernel",
    copies: programs::perf,
    limit: Duration::from_secs(60),
    guest,
    answer: nothing_asked,
    tests: || single(host),
};

const ITERATIONS: u64 = 1_000_000;

/// Starting and ending a program, and some clock ticks.
const PLAUSIBLE: std::ops::Range<u64> = 10_000..20_000_000;

/// No more than two, which is all that a P6 has.
fn guest(_: &Setting) -> String {
    let program = programs::spin(ITERATIONS);
    [stat(&["instructions:u"], "", &program), stat(&["instructions", "instructions:k"], "", &program)]
        .join("\n")
}

fn host(evidence: &Evidence) -> Result<()> {
    let all = counts(&evidence.output)?;
    let [user, both] = &all[..] else { anyhow::bail!("{} sets of counts, expected 2", all.len()) };
    let user = printed::of(user, "instructions:u")?;
    let (all, kernel) = (printed::of(both, "instructions")?, printed::of(both, "instructions:k")?);
    ensure!(PLAUSIBLE.contains(&kernel), "{kernel} instructions in the kernel");
    let rest = all.checked_sub(kernel).with_context(|| format!("{all} in all, {kernel} in the kernel"))?;
    // Started and stopped one after the other by the kernel, which counts itself: some more for one of them.
    let tolerance = if family::of(evidence.setting.pmu)?.global { 0 } else { kernel / 10 };
    ensure!(
        rest.abs_diff(user) <= tolerance,
        "{all} in all less {kernel} in the kernel is {rest}; in user mode there are {user}"
    );
    Ok(())
}
