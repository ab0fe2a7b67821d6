//! What is different from family to family.

use anyhow::{Context, Result};

use crate::dump::Event;

/// A family as the guest's kernel and its perf see it.
pub(super) struct Family {
    /// As `--pmu` has it.
    pmu: &'static str,
    /// What the kernel says at boot: the end of its line on the driver, the version, and of the number of counters.
    pub(super) driver: &'static str,
    pub(super) version: u32,
    pub(super) general: u32,
    pub(super) fixed: u32,
    /// Event number of retired branches; that of retired instructions is 0xC0 in all.
    branches: u32,
    /// Whether one register starts and stops all counters: then those of one program count the same instructions in
    /// the kernel too.
    pub(super) global: bool,
}

/// Families from 17h on come with their number before it.
const AMD_CORE: &str = " core perfctr, AMD PMU driver.";
const ARCHITECTURAL: &str = "Performance Events: generic architected perfmon, Intel PMU driver.";

const FAMILIES: [Family; 6] = [
    Family {
        pmu: "k7",
        driver: "Performance Events: AMD PMU driver.",
        version: 0,
        general: 4,
        fixed: 0,
        branches: 0xC2,
        global: false,
    },
    Family {
        pmu: "amd-core",
        driver: AMD_CORE,
        version: 0,
        general: 6,
        fixed: 0,
        branches: 0xC2,
        global: false,
    },
    Family {
        pmu: "amd-v2",
        driver: AMD_CORE,
        version: 2,
        general: 6,
        fixed: 0,
        branches: 0xC2,
        global: true,
    },
    Family {
        pmu: "pentium-m",
        driver: "Performance Events: p6 PMU driver.",
        version: 0,
        general: 2,
        fixed: 0,
        branches: 0xC4,
        global: true,
    },
    Family {
        pmu: "intel-v2",
        driver: ARCHITECTURAL,
        version: 2,
        general: 2,
        fixed: 2,
        branches: 0xC4,
        global: true,
    },
    Family {
        pmu: "intel-v4",
        driver: "Performance Events: generic architected perfmon, full-width counters, Intel PMU driver.",
        version: 4,
        general: 4,
        fixed: 2,
        branches: 0xC4,
        global: true,
    },
];

/// The family of a guest's `pmu`.
pub(super) fn of(pmu: &str) -> Result<&'static Family> {
    FAMILIES.iter().find(|family| family.pmu == pmu).with_context(|| format!("nothing is known of {pmu}"))
}

impl Family {
    /// perf's events for one run, without multiplexing.
    pub(super) fn events(&self) -> &'static [&'static str] {
        match self.general + self.fixed {
            0..4 => &["instructions:u", "branches:u"],
            _ => &["instructions:u", "branches:u", "cycles:u", "branch-misses:u"],
        }
    }

    /// perf's name of what a row of the host's dump counted; `None` for anything but what the cases use.
    pub(super) fn name_of(&self, row: &Event) -> Option<String> {
        let (event, kernel, user) = match row.fixed {
            // Four bits of IA32_FIXED_CTR_CTRL: kernel, user.
            Some(0) => ("instructions", row.evntsel & 1, row.evntsel & 2),
            Some(_) => return None,
            None if row.evntsel & 0xFFFF == 0xC0 => {
                ("instructions", row.evntsel & 0x2_0000, row.evntsel & 0x1_0000)
            }
            None if row.evntsel & 0xFFFF == self.branches => {
                ("branches", row.evntsel & 0x2_0000, row.evntsel & 0x1_0000)
            }
            None => return None,
        };
        let mode = match (user != 0, kernel != 0) {
            (true, true) => "",
            (true, false) => ":u",
            (false, true) => ":k",
            (false, false) => return None,
        };
        Some(format!("{event}{mode}"))
    }
}
