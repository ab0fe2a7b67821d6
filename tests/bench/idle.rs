//! Guests that start, and then do nothing; and the commands of VMMs with them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::arguments::Arguments;
use crate::images;
use crate::place::{Place, Sent};
use crate::qemu::Qemu;
use crate::system::System;

/// Their files.
pub(crate) struct Guests {
    null: Sent,
    first: Sent,
    kernel: String,
}

impl Guests {
    pub(crate) fn make(place: &Place, series: &str, folder: &Path) -> Result<Self> {
        let file = |name: &str, content: Vec<u8>| -> Result<Sent> {
            let path = folder.join(name);
            fs::write(&path, content).with_context(|| path.display().to_string())?;
            Ok((path, name.to_owned()))
        };
        Ok(Self {
            null: file("null.elf", images::null_kernel())?,
            first: file("first.cpio", images::first_program()?)?,
            kernel: place.kernel(series)?.display().to_string(),
        })
    }

    /// What must be there for them.
    pub(crate) fn files(&self) -> Vec<Sent> {
        vec![self.null.clone(), self.first.clone()]
    }

    /// perfvisor with one of them, Linux or the one that does nothing at all.
    pub(crate) fn perfvisor(
        &self,
        place: &Place,
        system: System,
        arguments: &Arguments,
        linux: bool,
        more: &[&str],
    ) -> Vec<String> {
        let mut command =
            vec![place.there(&(place.program("perfvisor"), "perfvisor".to_owned())), "run".into()];
        command.extend(system.run_options(&arguments.pmu).unwrap_or_default());
        command.extend(more.iter().map(|&word| word.to_owned()));
        if linux {
            let first = place.there(&self.first);
            let words = ["--kernel", &self.kernel, "--initrd", &first, "--console", "/dev/stdout"];
            command.extend(words.iter().map(|&word| word.to_owned()));
            if !more.contains(&"--memory") {
                command.extend(["--memory".to_owned(), "128M".to_owned()]);
            }
        } else {
            command.extend(["--kernel".to_owned(), place.there(&self.null)]);
        }
        command
    }

    /// Alioth's options for one of them.
    pub(crate) fn alioth(&self, place: &Place, linux: bool) -> Vec<String> {
        let (null, first) = (place.there(&self.null), place.there(&self.first));
        let words = Qemu::Pc.words();
        let linux_words = ["--kernel", &self.kernel, "--initramfs", &first, "--cmdline", words];
        let all = if linux { &linux_words[..] } else { &["--pvh", &null] };
        all.iter().map(|&word| word.to_owned()).collect()
    }

    /// QEMU with one of them, as far as its own options are the machine's.
    pub(crate) fn qemu(&self, place: &Place, machine: Qemu, linux: bool) -> Vec<String> {
        let (null, first) = (place.there(&self.null), place.there(&self.first));
        let linux_words = ["-kernel", &self.kernel, "-initrd", &first, "-append", machine.words()];
        let all = if linux { &linux_words[..] } else { &["-kernel", &null] };
        all.iter().map(|&word| word.to_owned()).collect()
    }
}
