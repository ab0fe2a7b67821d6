//! Files of the host for a guest: a second initramfs, made in memory at run time and appended to the base one.
//!
//! A program that needs shared libraries gets them, and its loader, at the paths they have on the host. Libraries
//! that a program loads by name while it runs are not known beforehand; they can be copied like any file.

pub(crate) mod libraries;

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::tree::Tree;
use libraries::{Needed, Search};

/// Folders of the base image: a file copied to one of these names goes into it, as with cp.
const BASE_FOLDERS: [&str; 16] = [
    "/",
    "/bin",
    "/sbin",
    "/usr",
    "/usr/bin",
    "/usr/sbin",
    "/usr/share",
    "/lib",
    "/etc",
    "/root",
    "/tmp",
    "/var",
    "/var/tmp",
    "/mnt",
    "/run",
    "/dev",
];

/// What to copy, as on the command line: `HOSTPATH[:GUESTPATH]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRequest {
    /// The file or folder on the host.
    pub host: PathBuf,
    /// Where it goes in the guest, absolute. Without it an absolute host path keeps its place, and a relative one is
    /// taken from the guest's root.
    pub guest: Option<PathBuf>,
}

impl FromStr for CopyRequest {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // Paths in the guest are absolute, so a colon elsewhere belongs to the file's name.
        Ok(match text.rfind(":/") {
            Some(colon) => {
                Self { host: text[..colon].into(), guest: Some(PathBuf::from(&text[colon + 1..])) }
            }
            None => Self { host: text.into(), guest: None },
        })
    }
}

impl CopyRequest {
    /// The path in the guest.
    fn destination(&self) -> Result<PathBuf> {
        let name = || {
            self.host.file_name().with_context(|| {
                format!(
                    "{} has no name of its own; say where it goes: HOSTPATH:GUESTPATH",
                    self.host.display()
                )
            })
        };
        let Some(guest) = &self.guest else {
            // ../x and the like have no place below the guest's root except by their last name.
            let inside = self.host.components().all(|part| !matches!(part, std::path::Component::ParentDir));
            return Ok(Path::new("/").join(if inside { self.host.as_path() } else { Path::new(name()?) }));
        };
        let into_folder = guest.as_os_str().as_encoded_bytes().ends_with(b"/")
            || BASE_FOLDERS.iter().any(|folder| Path::new(folder) == guest);
        Ok(if into_folder { guest.join(name()?) } else { guest.clone() })
    }
}

/// Collects files for a guest.
pub struct Overlay {
    tree: Tree,
    search: Search,
}

impl Default for Overlay {
    fn default() -> Self {
        Self::new()
    }
}

impl Overlay {
    /// An empty overlay.
    pub fn new() -> Self {
        Self { tree: Tree::new(), search: Search::of_host() }
    }

    /// Adds a file or a folder with all that is in it. Links inside a folder stay links; a link that is named itself
    /// is followed.
    pub fn copy(&mut self, request: &CopyRequest) -> Result<()> {
        let host = &request.host;
        let metadata = fs::metadata(host).with_context(|| {
            let colon = host.to_string_lossy().contains(':') && request.guest.is_none();
            let hint =
                if colon { " (in HOSTPATH:GUESTPATH the path in the guest must be absolute)" } else { "" };
            format!("cannot copy {} into the guest{hint}", host.display())
        })?;
        let guest = request.destination()?;
        if metadata.is_dir() { self.copy_folder(host, &guest) } else { self.copy_file(host, &guest) }
            .with_context(|| format!("cannot copy {} into the guest", host.display()))
    }

    /// Adds a file with a content of one's own.
    pub fn file(&mut self, guest: impl AsRef<Path>, mode: u32, content: impl Into<Vec<u8>>) -> Result<()> {
        self.tree.file(guest, mode, content)
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// The archive to append to the base initramfs.
    pub fn to_cpio(&self) -> Result<Vec<u8>> {
        self.tree.to_cpio()
    }

    fn copy_folder(&mut self, host: &Path, guest: &Path) -> Result<()> {
        let mode = fs::metadata(host)?.permissions().mode();
        self.tree.folder_with_mode(guest, mode)?;
        for entry in fs::read_dir(host).with_context(|| format!("cannot list {}", host.display()))? {
            let entry = entry?;
            let (host, guest) = (entry.path(), guest.join(entry.file_name()));
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.copy_folder(&host, &guest)?;
            } else if kind.is_symlink() {
                self.tree.link(&guest, fs::read_link(&host)?)?;
            } else {
                self.copy_file(&host, &guest)?;
            }
        }
        Ok(())
    }

    fn copy_file(&mut self, host: &Path, guest: &Path) -> Result<()> {
        let metadata = fs::metadata(host).with_context(|| format!("cannot read {}", host.display()))?;
        if !metadata.is_file() {
            bail!("{} is neither a file nor a folder", host.display());
        }
        let content = fs::read(host).with_context(|| format!("cannot read {}", host.display()))?;
        let needed = libraries::needed_by(&content);
        self.tree.file(guest, metadata.permissions().mode(), content)?;
        match needed {
            Some(needed) => self.copy_needed(host, guest, &needed, &[]),
            None => Ok(()),
        }
    }

    /// Adds the loader and the libraries of a program or library, and theirs. `inherited` are the folders that
    /// the DT_RPATH of those that led here adds to the search.
    fn copy_needed(
        &mut self,
        host: &Path,
        guest: &Path,
        needed: &Needed,
        inherited: &[libraries::Place],
    ) -> Result<()> {
        if let Some(loader) = &needed.loader
            && !self.tree.contains(loader)
        {
            let content = fs::read(loader)
                .with_context(|| format!("{} needs the loader {}", host.display(), loader.display()))?;
            self.tree.file(loader, 0o755, content)?;
        }
        let places = self.search.places(needed, host, guest, inherited);
        for library in &needed.libraries {
            let Some(found) = libraries::find(library, &places.all, needed.machine) else {
                let searched: Vec<_> =
                    places.all.iter().map(|place| place.host.display().to_string()).collect();
                bail!(
                    "{} needs the library {library}, which is in none of {}; install it, or build the program static",
                    host.display(),
                    searched.join(", ")
                );
            };
            if found.configured && !self.tree.contains(libraries::CACHE) {
                // The loader looks there for folders that it doesn't know by itself.
                self.tree.file(libraries::CACHE, 0o644, fs::read(libraries::CACHE).unwrap_or_default())?;
            }
            if self.tree.contains(&found.guest) {
                continue;
            }
            let content =
                fs::read(&found.host).with_context(|| format!("cannot read {}", found.host.display()))?;
            let further = libraries::needed_by(&content);
            self.tree.file(&found.guest, 0o755, content)?;
            if let Some(further) = further {
                self.copy_needed(&found.host, &found.guest, &further, &places.inherited)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> CopyRequest {
        text.parse().unwrap()
    }

    #[test]
    fn requests_as_users_write_them() {
        let destination = |text| request(text).destination().unwrap();
        assert_eq!(destination("/opt/a"), Path::new("/opt/a"));
        assert_eq!(destination("target/a"), Path::new("/target/a"));
        assert_eq!(destination("../a"), Path::new("/a"));
        assert_eq!(destination("./a:/opt/b"), Path::new("/opt/b"));
        assert_eq!(destination("a:/bin"), Path::new("/bin/a"));
        assert_eq!(destination("a:/opt/new/"), Path::new("/opt/new/a"));
        assert_eq!(request("a:b"), CopyRequest { host: "a:b".into(), guest: None });
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Overlay::new().copy(&request("/nonexistent/file")).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/file"), "{error:#}");
        let error = Overlay::new().copy(&request("nonexistent:relative")).unwrap_err();
        assert!(format!("{error:#}").contains("must be absolute"), "{error:#}");
    }

    #[test]
    fn a_dynamic_program_brings_its_libraries() {
        let mut overlay = Overlay::new();
        overlay.copy(&request("/bin/ls:/opt/ls")).unwrap();
        assert!(overlay.tree.contains("/opt/ls"));
        let archive = overlay.to_cpio().unwrap();
        let has = |name: &str| archive.windows(name.len()).any(|window| window == name.as_bytes());
        assert!(has("libc.so.6\0"), "the C library");
        assert!(has("libpcre2-8.so.0\0"), "a library of a library");
        assert!(has("ld-linux-x86-64.so.2\0"), "the loader");
    }

    #[test]
    fn a_folder_keeps_modes_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let tool = folder.path().join("sub/tool");
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(&tool, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o750)).unwrap();
        std::os::unix::fs::symlink("sub/tool", folder.path().join("link")).unwrap();
        let mut overlay = Overlay::new();
        overlay.copy(&CopyRequest { host: folder.path().into(), guest: Some("/data".into()) }).unwrap();
        let archive = overlay.to_cpio().unwrap();
        let entries = String::from_utf8_lossy(&archive).into_owned();
        assert!(overlay.tree.contains("/data/link") && overlay.tree.contains("/data/sub/tool"));
        assert!(entries.contains("000081e8"), "0100750 in hexadecimal");
    }
}
