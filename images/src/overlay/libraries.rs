//! Finds the shared libraries of a program as the dynamic loader would.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

use crate::regular_file::{PathDescriptor, RegularFile};

/// The loader's index of libraries in configured folders.
pub(crate) const CACHE: &str = "/etc/ld.so.cache";
const CONFIGURATION: &str = "/etc/ld.so.conf";
/// More than either of these ever has.
const CONFIGURATION_MOST: u64 = 16 << 20;

/// Where loaders look by themselves; which of these a given loader knows depends on its machine, and libraries for
/// other machines are passed over.
const BUILT_IN: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// What a program or library asks of the loader.
#[derive(Debug)]
pub(crate) struct Needed {
    pub(crate) loader: Option<PathBuf>,
    pub(crate) libraries: Vec<String>,
    pub(crate) machine: Machine,
    rpath: Vec<String>,
    runpath: Vec<String>,
}

/// What must be the same for a program and its libraries: the ELF class and the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine {
    class: u8,
    machine: u16,
}

/// A folder to search, with the folder in the guest that it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) host: PathBuf,
    guest: PathBuf,
    /// Known to the loader only through its configuration.
    configured: bool,
}

/// The places to search for one program's libraries.
pub(crate) struct Places {
    pub(crate) all: Vec<Place>,
    /// Those that its libraries search too.
    pub(crate) inherited: Vec<Place>,
}

/// A library that was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) file: RegularFile,
    pub(crate) host: PathBuf,
    pub(crate) guest: PathBuf,
    pub(crate) configured: bool,
}

/// Reads what a file asks of the loader; None when it isn't a dynamic ELF file.
pub(crate) fn needed_by(content: &[u8]) -> Option<Needed> {
    if !content.starts_with(b"\x7fELF") {
        return None;
    }
    let elf = Elf::parse(content).ok()?;
    if elf.interpreter.is_none() && elf.libraries.is_empty() {
        return None;
    }
    let split = |paths: &[&str]| {
        paths
            .iter()
            .flat_map(|list| list.split(':'))
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect()
    };
    Some(Needed {
        loader: elf.interpreter.map(PathBuf::from),
        libraries: elf.libraries.iter().map(|&name| name.to_owned()).collect(),
        machine: Machine::of(content)?,
        rpath: split(&elf.rpaths),
        runpath: split(&elf.runpaths),
    })
}

impl Machine {
    fn of(header: &[u8]) -> Option<Self> {
        let machine = header.get(18..20)?.try_into().ok()?;
        Some(Self { class: *header.get(4)?, machine: u16::from_le_bytes(machine) })
    }
}

/// The places that hold for every program of the host.
pub(crate) struct Search {
    standard: Vec<Place>,
}

impl Search {
    /// As the host's loader is configured.
    pub(crate) fn of_host() -> Self {
        let mut configured = Vec::new();
        read_configuration(Path::new(CONFIGURATION), &mut configured, 0);
        let built_in = BUILT_IN.map(PathBuf::from);
        let place = |host: PathBuf, configured| Place { guest: host.clone(), host, configured };
        let mut standard: Vec<Place> = Vec::new();
        for host in configured.into_iter().chain(built_in.clone()) {
            if !standard.iter().any(|known| known.host == host) {
                let configured = !built_in.contains(&host);
                standard.push(place(host, configured));
            }
        }
        Self { standard }
    }

    /// The places for the libraries of a file, in the loader's order.
    pub(crate) fn places(&self, needed: &Needed, host: &Path, guest: &Path, inherited: &[Place]) -> Places {
        let named =
            |paths: &[String]| paths.iter().filter_map(|path| named_place(path, host, guest)).collect();
        // DT_RPATH holds for a file's libraries and theirs, unless there is a DT_RUNPATH, which holds for its own only.
        let rpath: Vec<Place> = if needed.runpath.is_empty() { named(&needed.rpath) } else { Vec::new() };
        let runpath: Vec<Place> = named(&needed.runpath);
        let inherited: Vec<Place> = rpath.into_iter().chain(inherited.iter().cloned()).collect();
        let all = inherited.iter().chain(&runpath).chain(&self.standard).cloned().collect();
        Places { all, inherited }
    }
}

/// A folder named in a file; `$ORIGIN` is where the file itself is, on either side.
fn named_place(path: &str, host: &Path, guest: &Path) -> Option<Place> {
    let expand = |file: &Path| {
        let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let path = path.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
        // Other tokens stand for folders of optimised variants.
        (!path.contains('$')).then(|| lexically_clean(Path::new(&path)))
    };
    let host = fs::canonicalize(host).unwrap_or_else(|_| host.to_owned());
    Some(Place { host: expand(&host)?, guest: expand(guest)?, configured: false })
}

/// Without `.` and `..`, which an archive's names cannot have.
fn lexically_clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(clean.pop()),
            std::path::Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}

/// Whether a file with this content can be loaded together with one for `machine`.
pub(crate) fn is_for(machine: Machine, content: &[u8]) -> bool {
    content.starts_with(b"\x7fELF") && Machine::of(content) == Some(machine)
}

/// The first library of this name that fits the machine. Something of this name that is neither a file nor a folder is
/// an error, as it would be to the loader.
pub(crate) fn find(library: &str, places: &[Place], machine: Machine) -> io::Result<Option<Found>> {
    if library.contains('/') {
        let path = PathBuf::from(library);
        let file = fitting(&path, machine)?;
        return Ok(file.map(|file| Found { file, guest: path.clone(), host: path, configured: false }));
    }
    for place in places {
        let host = place.host.join(library);
        if let Some(file) = fitting(&host, machine)? {
            let guest = place.guest.join(library);
            return Ok(Some(Found { file, host, guest, configured: place.configured }));
        }
    }
    Ok(None)
}

/// The file at `path`, if it fits.
fn fitting(path: &Path, machine: Machine) -> io::Result<Option<RegularFile>> {
    let found = match PathDescriptor::at(path) {
        Ok(found) if !found.is_folder() => found,
        _ => return Ok(None),
    };
    let file = match found.open() {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::InvalidInput => {
            return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())));
        }
        Err(_) => return Ok(None),
    };
    let mut header = [0; 20];
    let read = file.as_file().read_exact_at(&mut header, 0);
    Ok((read.is_ok() && is_for(machine, &header)).then_some(file))
}

/// The loader's index.
pub(crate) fn cache() -> Vec<u8> {
    read_configured(Path::new(CACHE)).unwrap_or_default()
}

fn read_configured(path: &Path) -> io::Result<Vec<u8>> {
    RegularFile::open(path)?.read(CONFIGURATION_MOST)
}

/// Reads ld.so.conf: a folder per line, `include` with a pattern in the last part of a path.
fn read_configuration(path: &Path, folders: &mut Vec<PathBuf>, depth: usize) {
    // Files that include each other end here.
    if depth > 4 {
        return;
    }
    let Ok(text) = read_configured(path) else { return };
    for line in String::from_utf8_lossy(&text).lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(patterns) = line.strip_prefix("include ") {
            let base = path.parent().unwrap_or(Path::new("/"));
            for file in patterns.split_whitespace().flat_map(|pattern| matching(&base.join(pattern))) {
                read_configuration(&file, folders, depth + 1);
            }
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

/// The files that a path with at most one `*` in its last part names, sorted.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let name = name.to_string_lossy();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("ld.so.conf.d");
        fs::create_dir(&parts).unwrap();
        fs::write(folder.path().join("ld.so.conf"), "include ld.so.conf.d/*.conf\n/opt/last # comment\n")
            .unwrap();
        fs::write(parts.join("b.conf"), "/opt/b\n").unwrap();
        fs::write(parts.join("a.conf"), "# nothing\n/opt/a\n").unwrap();
        fs::write(parts.join("c.other"), "/opt/c\n").unwrap();
        let mut folders = Vec::new();
        read_configuration(&folder.path().join("ld.so.conf"), &mut folders, 0);
        assert_eq!(folders, ["/opt/a", "/opt/b", "/opt/last"].map(PathBuf::from));
    }

    #[test]
    fn origin_is_where_the_file_is_on_either_side() {
        let place = named_place("$ORIGIN/../lib", Path::new("/nonexistent/bin/tool"), Path::new("/opt/tool"))
            .unwrap();
        assert_eq!((place.host, place.guest), ("/nonexistent/lib".into(), "/lib".into()));
        assert!(named_place("/usr/$LIB", Path::new("/a"), Path::new("/a")).is_none());
    }

    #[test]
    fn a_static_program_needs_nothing() {
        // The tests themselves are static, as all programs of this project.
        let this = fs::read("/proc/self/exe").unwrap();
        assert!(needed_by(&this).is_none_or(|needed| needed.libraries.is_empty()));
        assert!(needed_by(b"#!/bin/sh\n").is_none());
    }
}
