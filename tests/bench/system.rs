//! What is compared: perfvisor with each of its sources, the incumbent, and machines without counters.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::counters::Instrument;
use crate::idle::Guests;
use crate::images;
use crate::place::Sent;
use crate::qemu::Qemu;
use crate::runs::Run;
use crate::setting::Setting;

/// A VMM, with what it counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum System {
    /// perfvisor, which counts by the host's perf
    Perf,
    /// perfvisor, which counts by its host module
    Module,
    /// perfvisor, whose guest counts by KVM's own virtual PMU
    Kvm,
    /// Debian's QEMU with KVM's own virtual PMU
    Qemu,
    /// perfvisor without a PMU: the floor
    None,
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl System {
    pub(crate) const ALL: &[Self] = &[Self::Perf, Self::Module, Self::Kvm, Self::Qemu, Self::None];

    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Perf => "perfvisor, source perf",
            Self::Module => "perfvisor, source module",
            Self::Kvm => "perfvisor, source kvm",
            Self::Qemu => "QEMU and KVM's vPMU",
            Self::None => "perfvisor, no PMU",
        }
    }

    /// By what it can be measured.
    pub(crate) fn instrument(self) -> Instrument {
        match self {
            // perf has no counters while the module has them.
            Self::Module => Instrument::Registers,
            // Where KVM counts, what it finds no counter for it does not count, and says nothing.
            Self::Kvm | Self::Qemu => Instrument::Perf,
            // What the VMM had loaded last stays loaded, while there is room.
            Self::Perf | Self::None => Instrument::Pinned,
        }
    }

    /// Whether a guest of it can have an operation.
    pub(crate) fn has(self, name: &str) -> bool {
        let driver =
            name.contains("perfctr") || name.contains("no-driver") || name == "switch/to-and-from-nobody";
        match self {
            Self::None => {
                !driver && !name.contains("perf-") && !name.contains("perf/") && !name.contains("msr/")
            }
            // The guest driver is perfvisor's.
            Self::Qemu => !driver,
            _ => true,
        }
    }

    /// Options of `perfvisor run`, if it is perfvisor.
    pub(crate) fn run_options(self, pmu: &str) -> Option<Vec<String>> {
        let words: &[&str] = match self {
            Self::Perf => &["--source", "perf", "--pmu", pmu],
            Self::Module => &["--source", "module", "--pmu", pmu],
            // The PMU is the host's, as KVM shows it.
            Self::Kvm => &["--source", "kvm"],
            Self::None => &["--pmu", "none"],
            Self::Qemu => return None,
        };
        Some(words.iter().map(|&word| word.to_owned()).collect())
    }
}

/// A command, on the machine that is measured.
pub(crate) struct Prepared {
    pub(crate) files: Vec<Sent>,
    pub(crate) command: Vec<String>,
    /// The command of machines beside it.
    pub(crate) beside: Vec<String>,
    /// Holds files made for it.
    _folder: TempDir,
}

/// Runs `costs` in a guest of this system.
pub(crate) fn costs(run: &Run<'_>, operations: &[String]) -> Result<Prepared> {
    let Run { system, setting, place, arguments, .. } = *run;
    let folder = tempfile::tempdir()?;
    let costs: Sent = (place.program("costs"), "costs".to_owned());
    let vcpus = setting.vcpus().to_string();
    if let Some(options) = system.run_options(&arguments.pmu) {
        let perfvisor: Sent = (place.program("perfvisor"), "perfvisor".to_owned());
        let mut command = vec![place.there(&perfvisor), "run".to_owned()];
        command.extend(options);
        command.extend(["--vcpus".to_owned(), vcpus, "--kernel".to_owned(), arguments.kernel.clone()]);
        command.extend(["--copy".to_owned(), format!("{}:/bin/costs", place.there(&costs))]);
        command.extend(["--".to_owned(), "costs".to_owned()]);
        command.extend(operations.iter().cloned());
        let mut files = vec![perfvisor, costs];
        let mut beside = Vec::new();
        if setting == Setting::Crowd {
            let guests = Guests::make(place, &arguments.kernel, folder.path())?;
            beside = guests.perfvisor(place, system, arguments, false, &["--memory", "128M"]);
            files.extend(guests.files());
        }
        return Ok(Prepared { files, command, beside, _folder: folder });
    }
    // Another initramfs each time, under another name: what was sent once is not sent again.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("costs-{}.cpio", NUMBER.fetch_add(1, Ordering::Relaxed));
    let initrd: Sent = (folder.path().join(&name), name);
    fs::write(&initrd.0, images::costs(place.layout(), &arguments.kernel, &costs.0, operations)?)?;
    let kernel = place.kernel(&arguments.kernel)?.display().to_string();
    let machine = Qemu::Microvm;
    let (mut files, mut command) = machine.command(place, "512M")?;
    command.extend(["-smp".to_owned(), vcpus]);
    command.extend(["-kernel".to_owned(), kernel, "-initrd".to_owned(), place.there(&initrd)]);
    command.extend(["-append".to_owned(), format!("{} nmi_watchdog=0", machine.words())]);
    files.push(initrd);
    Ok(Prepared { files, command, beside: Vec::new(), _folder: folder })
}
