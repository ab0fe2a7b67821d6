//! The command that runs `costs` in a guest of a system.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use tempfile::TempDir;

use crate::arguments::Arguments;
use crate::idle::Guests;
use crate::images;
use crate::place::{Place, Sent};
use crate::qemu::Qemu;
use crate::setting::Setting;
use crate::system::System;

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
pub(crate) fn costs(
    system: System,
    setting: Setting,
    place: &Place,
    arguments: &Arguments,
    operations: &[String],
) -> Result<Prepared> {
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
