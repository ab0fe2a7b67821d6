//! The kernel recognises the family's PMU.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{family, programs};
use crate::case::{Case, Evidence, Setting, nothing_asked, single};

pub(crate) const CASE: Case = Case {
    name: "driver",
    copies: programs::perf,
    limit: Duration::from_secs(60),
    guest,
    answer: nothing_asked,
    tests: || single(host),
};

/// The kernel limits the samples to what it thinks a machine can bear, by the time they take: in the lab time means
/// nothing. In this order, for without its second half it does not take the first.
fn guest(_: &Setting) -> String {
    "sysctl -q -w kernel.perf_event_max_sample_rate=1000000\n\
     sysctl -q -w kernel.perf_cpu_time_max_percent=0\n\
     dmesg | grep -E 'Performance Events:|\\.\\.\\. ' | cut -d ']' -f 2-\n\
     sysctl kernel.nmi_watchdog\n"
        .to_owned()
}

fn host(evidence: &Evidence) -> Result<()> {
    let family = family::of(evidence.setting.pmu)?;
    let found = evidence.output.lines().any(|line| line.ends_with(family.driver));
    ensure!(found, "the kernel does not say '{}'", family.driver);
    let lines = [
        format!(" ... version:                {}", family.version),
        format!(" ... generic registers:      {}", family.general),
        format!(" ... fixed-purpose events:   {}", family.fixed),
        // It would hold a counter, and read it before the driver is there that makes RDPMC work.
        "kernel.nmi_watchdog = 0".to_owned(),
    ];
    for line in lines {
        ensure!(evidence.output.lines().any(|said| said == line), "the kernel does not say '{line}'");
    }
    Ok(())
}
