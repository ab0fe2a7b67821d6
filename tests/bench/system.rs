//! What is compared: perfvisor with each of its sources, the incumbent, and machines without counters.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::arguments::Arguments;
use crate::counters::Instrument;
use crate::images;
use crate::place::{Place, Sent};

/// A VMM, with what it counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum System {
    /// perfvisor, which counts by the host's perf
    Perf,
    /// perfvisor, which counts by its host module
    Module,
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
    pub(crate) const ALL: &[Self] = &[Self::Perf, Self::Module, Self::Qemu, Self::None];

    /// As on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Perf => "perfvisor, source perf",
            Self::Module => "perfvisor, source module",
            Self::Qemu => "QEMU and KVM's vPMU",
            Self::None => "perfvisor, no PMU",
        }
    }

    /// By what it can be measured.
    pub(crate) fn instrument(self) -> Instrument {
        match self {
            // perf has no counters while the module has them.
            Self::Module => Instrument::Registers,
            _ => Instrument::Perf,
        }
    }

    /// Options of `perfvisor run`, if it is perfvisor.
    pub(crate) fn run_options(self, pmu: &str) -> Option<Vec<String>> {
        let words: &[&str] = match self {
            Self::Perf => &["--source", "perf", "--pmu", pmu],
            Self::Module => &["--source", "module", "--pmu", pmu],
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
    /// Holds files made for it.
    _folder: Option<TempDir>,
}

/// Runs `costs` in a guest of this system.
pub(crate) fn costs(
    system: System,
    place: &Place,
    arguments: &Arguments,
    operations: &[String],
) -> Result<Prepared> {
    let costs: Sent = (place.program("costs"), "costs".to_owned());
    if let Some(options) = system.run_options(&arguments.pmu) {
        let perfvisor: Sent = (place.program("perfvisor"), "perfvisor".to_owned());
        let mut command = vec![place.there(&perfvisor), "run".to_owned()];
        command.extend(options);
        command.extend(["--kernel".to_owned(), arguments.kernel.clone()]);
        command.extend(["--copy".to_owned(), format!("{}:/bin/costs", place.there(&costs))]);
        command.extend(["--".to_owned(), "costs".to_owned()]);
        command.extend(operations.iter().cloned());
        return Ok(Prepared { files: vec![perfvisor, costs], command, _folder: None });
    }
    let folder = tempfile::tempdir()?;
    let initrd: Sent = (folder.path().join("costs.cpio"), "costs.cpio".to_owned());
    fs::write(&initrd.0, images::costs(place.layout(), &arguments.kernel, &costs.0)?)?;
    let kernel = place.kernel(&arguments.kernel)?.display().to_string();
    let machine = Qemu::Microvm;
    let (mut files, mut command) = machine.command(place, "512M")?;
    command.extend(["-kernel".to_owned(), kernel, "-initrd".to_owned(), place.there(&initrd)]);
    let words = format!("{} nmi_watchdog=0 -- {}", machine.words(), operations.join(" "));
    command.extend(["-append".to_owned(), words]);
    files.push(initrd);
    Ok(Prepared { files, command, _folder: Some(folder) })
}

/// Machines of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Qemu {
    Microvm,
    Pc,
}

impl Qemu {
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Microvm => "qemu-system-x86_64-microvm",
            Self::Pc => "qemu-system-x86_64",
        }
    }

    /// The options that make each start fast: no option ROM, no device that is not needed.
    fn machine(self) -> &'static str {
        match self {
            Self::Microvm => "microvm,x-option-roms=off,rtc=on,isa-serial=on",
            Self::Pc => "pc",
        }
    }

    /// For a kernel: those of perfvisor's guests, as far as the machines are alike.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Microvm => "console=ttyS0 quiet panic=-1 reboot=t pci=off 8250.nr_uarts=1 tsc=reliable",
            Self::Pc => "console=ttyS0 quiet panic=-1 reboot=t 8250.nr_uarts=1 tsc=reliable",
        }
    }

    /// The firmware that starts a kernel soonest, of those that Debian has for it.
    fn firmware(self) -> &'static str {
        match self {
            Self::Microvm => "qboot.rom",
            Self::Pc => "bios-256k.bin",
        }
    }

    /// The machine without its kernel: its serial port is standard input and output. And what must be there.
    pub(crate) fn command(self, place: &Place, memory: &str) -> Result<(Vec<Sent>, Vec<String>)> {
        let folder =
            place.layout().qemu().context("Debian's QEMU is not there; `cargo xtask bench` fetches it")?;
        let program: Sent = (folder.join("bin").join(self.program()), format!("qemu/bin/{}", self.program()));
        let share: Sent = (folder.join("share"), "qemu/share".to_owned());
        let words = [
            &place.there(&program),
            "-L",
            &place.there(&share),
            "-bios",
            self.firmware(),
            "-M",
            self.machine(),
            "-accel",
            "kvm",
            "-cpu",
            "host,pmu=on",
            "-smp",
            "1",
            "-m",
            memory,
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-chardev",
            "stdio,id=serial,signal=off",
            "-serial",
            "chardev:serial",
        ];
        let command = words.iter().map(|&word| word.to_owned()).collect();
        Ok((vec![program, share], command))
    }

    /// The program and its libraries, on this host.
    pub(crate) fn installed(self, place: &Place) -> Option<(PathBuf, PathBuf)> {
        let folder = place.layout().qemu()?;
        Some((folder.join("bin").join(self.program()), folder.join("lib/qemu")))
    }
}
