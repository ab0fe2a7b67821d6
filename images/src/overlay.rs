//! Files of the host for a guest: a second initramfs, made in memory at run time and appended to the base one.
//!
//! A program that needs shared libraries gets them, and its loader, at the paths they have on the host. Libraries
//! that a program loads by name while it runs are not known beforehand; they can be copied like any file.
//! What a program asks for is believed only as far as it can be a loader or a library.

pub(crate) mod libraries;

use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::regular_file::{PathDescriptor, RegularFile};
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
    /// How many bytes can be copied.
    most: u64,
    /// How many of them are left.
    left: u64,
}

/// A file that needs libraries.
struct Dependent {
    host: PathBuf,
    guest: PathBuf,
    needed: Needed,
    /// The folders that the DT_RPATH of those that led here adds to the search.
    inherited: Vec<libraries::Place>,
}

/// Each folder within a folder takes a descriptor.
const DEEPEST: usize = 200;

impl Overlay {
    /// An empty overlay for a machine that can take `most` bytes.
    pub fn new(most: u64) -> Self {
        Self { tree: Tree::new(), search: Search::of_host(), most, left: most }
    }

    /// Adds a file or a folder with all that is in it. Links inside a folder stay links; a link that is named itself
    /// is followed.
    pub fn copy(&mut self, request: &CopyRequest) -> Result<()> {
        let host = &request.host;
        let found = PathDescriptor::at(host).with_context(|| {
            let colon = host.to_string_lossy().contains(':') && request.guest.is_none();
            let hint =
                if colon { " (in HOSTPATH:GUESTPATH the path in the guest must be absolute)" } else { "" };
            format!("cannot copy {} into the guest{hint}", host.display())
        })?;
        let guest = request.destination()?;
        self.copy_found(&found, host, &guest, 0)
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

    fn copy_found(&mut self, found: &PathDescriptor, host: &Path, guest: &Path, depth: usize) -> Result<()> {
        if found.is_folder() {
            self.copy_folder(found, host, guest, depth)
        } else if found.is_link() {
            let target = found.target().with_context(|| format!("cannot read {}", host.display()))?;
            self.tree.link(guest, target)
        } else {
            self.copy_file(found, host, guest)
        }
    }

    /// Goes from folder to folder by descriptors: what somebody moves meanwhile leads nowhere else.
    fn copy_folder(&mut self, found: &PathDescriptor, host: &Path, guest: &Path, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            bail!("{} is more than {DEEPEST} folders deep; copy an archive of it instead", host.display());
        }
        self.tree.folder_with_mode(guest, found.mode())?;
        let (folder, names) = found.entries().with_context(|| format!("cannot list {}", host.display()))?;
        for name in names {
            let own = OsStr::from_bytes(name.as_bytes());
            let (host, guest) = (host.join(own), guest.join(own));
            let found = PathDescriptor::inside(&folder, &name)
                .with_context(|| format!("cannot read {}", host.display()))?;
            self.copy_found(&found, &host, &guest, depth + 1)?;
        }
        Ok(())
    }

    fn copy_file(&mut self, found: &PathDescriptor, host: &Path, guest: &Path) -> Result<()> {
        let file = found.open().with_context(|| format!("cannot read {}", host.display()))?;
        let mut pending = Vec::new();
        pending.extend(self.add(file, found.mode(), host, guest, &[])?);
        while let Some(dependent) = pending.pop() {
            self.copy_needed(&dependent, &mut pending)?;
        }
        Ok(())
    }

    /// Adds one file; returns it if it needs others.
    fn add(
        &mut self,
        file: RegularFile,
        mode: u32,
        host: &Path,
        guest: &Path,
        inherited: &[libraries::Place],
    ) -> Result<Option<Dependent>> {
        let content = self.read(file, host)?;
        let needed = libraries::needed_by(&content);
        self.tree.file(guest, mode, content)?;
        let (host, guest, inherited) = (host.to_owned(), guest.to_owned(), inherited.to_owned());
        Ok(needed.map(|needed| Dependent { host, guest, needed, inherited }))
    }

    /// All of a file, as far as the machine can take it.
    fn read(&mut self, file: RegularFile, host: &Path) -> Result<Vec<u8>> {
        let length = file.length();
        let content = file.read(self.left).with_context(|| {
            let room = if length > self.left {
                format!(
                    " ({} MiB can be copied in all: leave something out, or give the machine more memory, --memory)",
                    self.most >> 20
                )
            } else {
                String::new()
            };
            format!("cannot read {}{room}", host.display())
        })?;
        self.left -= content.len() as u64;
        Ok(content)
    }

    /// Adds the loader and the libraries of a program or library. Those that need others themselves are put to the
    /// pending ones.
    fn copy_needed(&mut self, dependent: &Dependent, pending: &mut Vec<Dependent>) -> Result<()> {
        let Dependent { host, guest, needed, inherited } = dependent;
        if let Some(loader) = &needed.loader
            && !self.tree.contains(loader)
        {
            let why = || format!("{} needs the loader {}", host.display(), loader.display());
            let file = RegularFile::open(loader).with_context(why)?;
            let content = self.read(file, loader).with_context(why)?;
            // Who made the program need not be who copies it: it gets no other file of this host's by this name.
            if !libraries::is_for(needed.machine, &content) {
                bail!("{}, which is not an ELF file for the same machine; build the program static", why());
            }
            self.tree.file(loader, 0o755, content)?;
        }
        let places = self.search.places(needed, host, guest, inherited);
        for library in &needed.libraries {
            let found = libraries::find(library, &places.all, needed.machine)
                .with_context(|| format!("{} needs the library {library}", host.display()))?;
            let Some(found) = found else {
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
                self.tree.file(libraries::CACHE, 0o644, libraries::cache())?;
            }
            if !self.tree.contains(&found.guest) {
                pending.extend(self.add(found.file, 0o755, &found.host, &found.guest, &places.inherited)?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod untrusted;
#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const MOST: u64 = 64 << 20;

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
        let error = Overlay::new(MOST).copy(&request("/nonexistent/file")).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/file"), "{error:#}");
        let error = Overlay::new(MOST).copy(&request("nonexistent:relative")).unwrap_err();
        assert!(format!("{error:#}").contains("must be absolute"), "{error:#}");
    }

    #[test]
    fn a_dynamic_program_brings_its_libraries() {
        let mut overlay = Overlay::new(MOST);
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
        let mut overlay = Overlay::new(MOST);
        overlay.copy(&CopyRequest { host: folder.path().into(), guest: Some("/data".into()) }).unwrap();
        let archive = overlay.to_cpio().unwrap();
        let entries = String::from_utf8_lossy(&archive).into_owned();
        assert!(overlay.tree.contains("/data/link") && overlay.tree.contains("/data/sub/tool"));
        assert!(entries.contains("000081e8"), "0100750 in hexadecimal");
    }
}
