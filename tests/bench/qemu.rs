//! Debian's QEMU: its machines, and how each starts fastest.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::place::{Place, Sent};

/// Machines of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Qemu {
    Microvm,
    Pc,
}

impl Qemu {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Microvm => "QEMU microvm",
            Self::Pc => "QEMU pc",
        }
    }

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
            Self::Microvm => {
                "console=ttyS0 quiet panic=-1 reboot=t pci=off 8250.nr_uarts=1 tsc=reliable cryptomgr.notests"
            }
            Self::Pc => {
                "console=ttyS0 quiet panic=-1 reboot=t 8250.nr_uarts=1 tsc=reliable cryptomgr.notests"
            }
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
