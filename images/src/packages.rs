//! The Debian packages that must be installed on the machine: compilers and tools. All else is only unpacked.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::layout::Layout;
use crate::process::Program;
use crate::progress::Step;

/// What a set-up runs, and what for.
const REQUIRED: [&str; 21] = [
    // Unpacking, and the kernel's build of modules; 6.12 makes type information with pahole (dwarves).
    "dwarves",
    "gcc",
    "gcc-12",
    "libc6-dev",
    "libelf1",
    "lz4",
    "make",
    "patch",
    "perl",
    "xz-utils",
    "zstd",
    // QEMU.
    "bison",
    "flex",
    "libfdt-dev",
    "libglib2.0-dev",
    "libpixman-1-dev",
    "meson",
    "ninja-build",
    "pkg-config",
    "python3",
    "zlib1g-dev",
];

/// Lists older than this may name files that are gone.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// Packages are missing and this process may not install them.
#[derive(Debug)]
pub struct Missing {
    packages: Vec<&'static str>,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let packages = self.packages.join(" ");
        writeln!(f, "Debian packages are missing. Install them, then run this again:\n")?;
        write!(f, "    sudo apt-get install --yes --no-install-recommends {packages}")
    }
}

impl std::error::Error for Missing {}

/// Makes sure the required packages are installed: installs them when run by root, else fails with [`Missing`].
pub fn setup(layout: &Layout) -> Result<()> {
    let installed = installed()?;
    let packages: Vec<&str> =
        REQUIRED.into_iter().filter(|package| !installed.iter().any(|name| name == package)).collect();
    if packages.is_empty() {
        return Ok(());
    }
    if !is_root()? {
        return Err(Missing { packages }.into());
    }
    let apt = || Program::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").arg("-q");
    if lists_are_stale(Path::new("/var/lib/apt/lists")) {
        let step = Step::begin("apt-get update");
        apt().arg("update").log(layout.log("apt-update")).watch(|line| step.at(line))?;
        step.done("");
    }
    let step = Step::begin(format!("install {}", packages.join(" ")));
    let install = apt().args(["install", "--yes", "--no-install-recommends"]).args(&packages);
    install.log(layout.log("apt-install")).watch(|line| step.at(line))?;
    step.done("");
    Ok(())
}

/// The names of all installed packages.
fn installed() -> Result<Vec<String>> {
    let query = Program::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status} ${Package}\\n"]);
    let list =
        query.text().context("perfvisor's images are made on Debian 12: this machine has no dpkg-query")?;
    Ok(list.lines().filter_map(|line| Some(line.strip_prefix("installed ")?.to_owned())).collect())
}

fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").context("cannot read /proc/self")?.uid() == 0)
}

/// Whether there is no recent list of packages.
fn lists_are_stale(folder: &Path) -> bool {
    let lists = fs::read_dir(folder).into_iter().flatten().flatten();
    let releases = lists.filter(|entry| entry.file_name().to_string_lossy().ends_with("Release"));
    // apt sets the time of a list to that of the archive; the status change is when it was fetched.
    let fetched =
        releases.filter_map(|entry| Some(SystemTime::UNIX_EPOCH + changed(&entry.metadata().ok()?)?));
    fetched.max().is_none_or(|fetched| fetched.elapsed().is_ok_and(|age| age > STALE))
}

fn changed(metadata: &fs::Metadata) -> Option<Duration> {
    Some(Duration::from_secs(metadata.ctime().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_run_is_exact() {
        let missing = Missing { packages: vec!["bc", "flex"] };
        let text = missing.to_string();
        assert!(text.ends_with("    sudo apt-get install --yes --no-install-recommends bc flex"), "{text}");
    }

    #[test]
    fn lists_go_stale() {
        let folder = tempfile::tempdir().unwrap();
        assert!(lists_are_stale(folder.path()));
        fs::write(folder.path().join("a_dists_bookworm_InRelease"), "").unwrap();
        assert!(!lists_are_stale(folder.path()));
    }
}
