//! Where the images are.
//!
//! ```text
//! $PERFVISOR_CACHE, else $XDG_CACHE_HOME/perfvisor, else ~/.cache/perfvisor
//!   kernels/<series>/   bzImage  release  initramfs.cpio  modules/  and bzImage.lab
//!   headers/<series>/   an unpacked header tree, and kdir: the KDIR to build modules against
//!   drivers/<series>/   the modules built for it: the guest driver, and the host's
//!   lab/                machine/{qemu-system-x86_64, firmware/}  initramfs.cpio
//!   perf/               Linux's perf with its libraries
//!   qemu/               Debian's QEMU with its libraries, for comparisons
//!   archive/            downloaded packages, their pinned versions, private apt state
//!   logs/               the full output of every long command
//! ```

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::artefact;
use crate::series::{self, Series};

/// The environment variable that moves the cache.
pub const CACHE_VARIABLE: &str = "PERFVISOR_CACHE";

/// The cache folder with names for what is in it.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

/// A guest kernel that is ready to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelImage {
    /// The compressed kernel.
    pub bzimage: PathBuf,
    /// The same, not compressed and without KASLR: in the lab machine alone.
    pub uncompressed: Option<PathBuf>,
    /// The base initramfs: init, busybox, modules, perfex. Uncompressed, padded, so another may be appended.
    pub initramfs: PathBuf,
    /// The release, as `uname -r` says in the guest.
    pub release: String,
}

/// The lab machine, ready to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabImage {
    /// QEMU with the emulated PMU.
    pub qemu: PathBuf,
    /// Folders for QEMU's `-L`, in search order.
    pub firmware: Vec<PathBuf>,
    /// The lab's host kernel.
    pub kernel: PathBuf,
    /// The lab's root: KVM modules, busybox, and the guest kernels under [`LAB_CACHE`].
    pub initramfs: PathBuf,
}

/// What is [`UNCOMPRESSED`] in the lab machine's cache has this name in the host's, where nobody is to use it.
pub(crate) const FOR_LAB: &str = "bzImage.lab";
pub(crate) const UNCOMPRESSED: &str = "bzImage.uncompressed";

/// Inside the lab machine the cache with the guest kernels is here; perfvisor in the lab runs with
/// [`CACHE_VARIABLE`] set to it.
pub const LAB_CACHE: &str = "/perfvisor";

impl Layout {
    /// Finds the cache. Nothing is created.
    pub fn open() -> Result<Self> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = if let Some(cache) = set(CACHE_VARIABLE) {
            // Build rules for the kernel's make hold absolute paths below it.
            std::path::absolute(&cache).with_context(|| format!("{CACHE_VARIABLE}={}", cache.display()))?
        } else if let Some(xdg) = set("XDG_CACHE_HOME").filter(|xdg| xdg.is_absolute()) {
            xdg.join("perfvisor")
        } else if let Some(home) = set("HOME") {
            home.join(".cache/perfvisor")
        } else {
            bail!("no place for the cache: neither {CACHE_VARIABLE} nor XDG_CACHE_HOME nor HOME is set");
        };
        Ok(Self { root })
    }

    /// A cache at a given place.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The cache folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The series a guest runs unless told otherwise.
    pub fn default_series() -> &'static str {
        series::DEFAULT.name
    }

    /// The names of all series.
    pub fn series() -> impl Iterator<Item = &'static str> {
        series::ALL.iter().map(|series| series.name)
    }

    /// The guest kernel of a series, when it is set up.
    pub fn kernel(&self, series: &str) -> Option<KernelImage> {
        // The name comes from users and becomes a path.
        let series = series::ALL.iter().find(|known| known.name == series)?;
        let folder = self.kernel_folder(series);
        let image = KernelImage {
            bzimage: folder.join("bzImage"),
            uncompressed: Some(folder.join(UNCOMPRESSED)).filter(|file| file.is_file()),
            initramfs: self.guest_initramfs(series),
            release: fs::read_to_string(folder.join("release")).ok()?.trim().to_owned(),
        };
        (image.bzimage.is_file() && image.initramfs.is_file()).then_some(image)
    }

    /// A module of a series' stock kernel, when it is set up.
    pub fn module(&self, series: &str, name: &str) -> Option<PathBuf> {
        let series = series::ALL.iter().find(|known| known.name == series)?;
        Some(self.kernel_modules(series).join(format!("{name}.ko"))).filter(|module| module.is_file())
    }

    /// A module of this project for a series, when it is set up.
    pub fn own_module(&self, series: &str, name: &str) -> Option<PathBuf> {
        let series = series::ALL.iter().find(|known| known.name == series)?;
        Some(self.driver_folder(series).join(format!("{name}.ko"))).filter(|module| module.is_file())
    }

    /// The lab machine, when it is set up.
    pub fn lab(&self) -> Option<LabImage> {
        let machine = self.lab_machine();
        let image = LabImage {
            qemu: machine.join("qemu-system-x86_64"),
            firmware: vec![machine.join("firmware")],
            kernel: self.kernel_folder(&series::DEFAULT).join("bzImage"),
            initramfs: self.lab_initramfs(),
        };
        let whole = image.qemu.is_file() && image.kernel.is_file() && image.initramfs.is_file();
        whole.then_some(image)
    }

    /// How to get what is missing.
    pub fn remedy(&self) -> String {
        format!("run `cargo xtask setup` (looked in {})", self.root.display())
    }

    pub(crate) fn kernel_folder(&self, series: &Series) -> PathBuf {
        self.root.join("kernels").join(series.name)
    }

    pub(crate) fn kernel_modules(&self, series: &Series) -> PathBuf {
        self.kernel_folder(series).join("modules")
    }

    pub(crate) fn guest_initramfs(&self, series: &Series) -> PathBuf {
        self.kernel_folder(series).join("initramfs.cpio")
    }

    pub(crate) fn headers_folder(&self, series: &Series) -> PathBuf {
        self.root.join("headers").join(series.name)
    }

    /// The folder to give to the kernel's make as KDIR.
    pub fn kdir(&self, series: &Series) -> PathBuf {
        self.headers_folder(series).join("kdir")
    }

    pub(crate) fn driver_folder(&self, series: &Series) -> PathBuf {
        self.root.join("drivers").join(series.name)
    }

    pub(crate) fn lab_machine(&self) -> PathBuf {
        self.root.join("lab/machine")
    }

    pub(crate) fn lab_initramfs(&self) -> PathBuf {
        self.root.join("lab/initramfs.cpio")
    }

    /// Linux's `perf`, when it is set up: a program that can be copied into a machine.
    pub fn perf(&self) -> Option<PathBuf> {
        Some(self.perf_folder().join("bin/perf")).filter(|program| program.is_file())
    }

    pub(crate) fn perf_folder(&self) -> PathBuf {
        self.root.join("perf")
    }

    /// Debian's QEMU with its libraries and firmware (`bin`, `lib/qemu`, `share`), when it is set up.
    pub fn qemu(&self) -> Option<PathBuf> {
        Some(self.qemu_folder()).filter(|folder| folder.is_dir())
    }

    pub(crate) fn qemu_folder(&self) -> PathBuf {
        self.root.join("qemu")
    }

    /// Alioth, when it is set up.
    pub fn alioth(&self) -> Option<PathBuf> {
        Some(self.alioth_folder().join("bin/alioth")).filter(|program| program.is_file())
    }

    pub(crate) fn alioth_folder(&self) -> PathBuf {
        self.root.join("alioth")
    }

    pub(crate) fn checkpatch_folder(&self) -> PathBuf {
        self.root.join("checkpatch")
    }

    pub(crate) fn sparse_folder(&self) -> PathBuf {
        self.root.join("sparse")
    }

    pub(crate) fn dkms_folder(&self) -> PathBuf {
        self.root.join("dkms")
    }

    /// Programs made for perfctr 2.6, when they are set up: static ones that can be copied into a machine.
    pub fn older_programs(&self) -> Option<PathBuf> {
        Some(self.older_programs_folder().join("bin")).filter(|folder| folder.is_dir())
    }

    pub(crate) fn older_programs_folder(&self) -> PathBuf {
        self.root.join("older-programs")
    }

    pub(crate) fn busybox(&self) -> PathBuf {
        self.root.join("busybox")
    }

    pub(crate) fn archive_folder(&self) -> PathBuf {
        self.root.join("archive")
    }

    /// Where the output of a command of this name goes.
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    /// Removes what a set-up made; only when asked to, also what it downloaded, so that all begins anew.
    pub fn clean(&self, keep_downloads: bool) -> Result<()> {
        let _lock = self.lock()?;
        let kept: Vec<PathBuf> = keep_downloads.then(|| self.archive_folder()).into_iter().collect();
        // One by one, so that a cache variable that points to a wrong place does no harm there.
        for name in [
            "kernels",
            "headers",
            "drivers",
            "lab",
            "checkpatch",
            "checkpatch.key",
            "sparse",
            "sparse.key",
            "dkms",
            "dkms.key",
            "perf",
            "perf.key",
            "older-programs",
            "older-programs.key",
            "qemu",
            "qemu.key",
            "busybox",
            "busybox.key",
            "logs",
            "archive",
        ] {
            let path = self.root.join(name);
            if !kept.contains(&path) {
                artefact::remove(&path)?;
            }
        }
        Ok(())
    }

    /// Takes the cache for this process: a second set-up waits here for the first. Released when dropped, and by
    /// the kernel when the process ends in any way.
    pub fn lock(&self) -> Result<fs::File> {
        fs::create_dir_all(&self.root)
            .with_context(|| format!("cannot create the cache folder {}", self.root.display()))?;
        let path = self.root.join("lock");
        let file = fs::File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => {
                eprintln!("waiting for another set-up of {}", self.root.display())
            }
            Err(fs::TryLockError::Error(error)) => return Err(lock_failure(error, &path)),
        }
        file.lock().map_err(|error| lock_failure(error, &path))?;
        Ok(file)
    }
}

fn lock_failure(error: io::Error, path: &Path) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("cannot lock {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_there_only_when_whole() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        let kernel = folder.path().join("kernels/6.12");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("bzImage"), "k").unwrap();
        fs::write(kernel.join("release"), "6.12.1-test\n").unwrap();
        assert_eq!(layout.kernel("6.12"), None);
        fs::write(kernel.join("initramfs.cpio"), "i").unwrap();
        assert_eq!(layout.kernel("6.12").unwrap().release, "6.12.1-test");
        assert_eq!(layout.kernel("../kernels/6.12"), None);
    }

    #[test]
    fn a_second_lock_waits_for_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        let first = layout.lock().unwrap();
        let other = layout.clone();
        let waiter = std::thread::spawn(move || other.lock().map(drop));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waiter.is_finished());
        drop(first);
        waiter.join().unwrap().unwrap();
    }
}
