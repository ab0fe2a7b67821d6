//! Files that are read for a machine: regular ones, and no more of them than makes sense.
//!
//! What a path names is asked of a descriptor, and that is what is read then: nobody can put something else into its place in
//! between. At first the descriptor is one that only stands for the path (O_PATH), for already opening can do harm: of a
//! FIFO it waits for a writer, and of a device it may do anything (a watchdog's starts to run).

use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, open, openat, readlinkat};

/// What a path names, held fast, and not open for reading yet.
#[derive(Debug)]
pub struct PathDescriptor {
    descriptor: OwnedFd,
    kind: FileType,
    mode: u32,
    length: u64,
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    mode: u32,
    length: u64,
}

impl PathDescriptor {
    /// What is at `path`, behind all links.
    pub fn at(path: &Path) -> io::Result<Self> {
        Self::of(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// What a folder has under this name: a link itself, if it is one.
    pub fn inside(folder: impl AsFd, name: &CStr) -> io::Result<Self> {
        Self::of(openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&descriptor)?;
        Ok(Self {
            descriptor,
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: stat.st_mode & 0o7777,
            length: u64::try_from(stat.st_size).unwrap_or(0),
        })
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        self.kind == FileType::Symlink
    }

    /// Its permission bits.
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Where a link leads.
    pub fn target(&self) -> io::Result<PathBuf> {
        let target = readlinkat(&self.descriptor, c"", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// The names in a folder, sorted, and the folder to look them up in.
    pub fn entries(&self) -> io::Result<(OwnedFd, Vec<CString>)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&self.descriptor, c".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.as_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        names.sort();
        Ok((folder, names))
    }

    /// The file, open for reading; an error says what else it is.
    pub fn open(&self) -> io::Result<RegularFile> {
        if let Some(what) = irregular(self.kind) {
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        }
        // A descriptor of this kind is opened by its name in /proc. Some of the kernel's own files wait for what they are to
        // tell (/proc/kmsg): these say EAGAIN instead.
        let name = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = open(name, flags, Mode::empty())?.into();
        Ok(RegularFile { file, mode: self.mode, length: self.length })
    }
}

impl RegularFile {
    /// The file at `path`, behind all links.
    pub fn open(path: &Path) -> io::Result<Self> {
        PathDescriptor::at(path)?.open()
    }

    /// Its length when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its permission bits.
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// For who reads parts of it.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// The same, and keeps it.
    pub fn into_file(self) -> File {
        self.file
    }

    /// All of it, if that is no more than `most` bytes. It may have grown since it was opened, and files of the kernel's own say
    /// that they are empty.
    pub fn read(self, most: u64) -> io::Result<Vec<u8>> {
        if self.length > most {
            return Err(too_long(self.length, most));
        }
        let mut content = Vec::with_capacity(self.length as usize);
        (&self.file).take(most.saturating_add(1)).read_to_end(&mut content)?;
        match content.len() as u64 {
            length if length > most => Err(too_long(length, most)),
            _ => Ok(content),
        }
    }
}

/// What it is, if it is no regular file, and what to do about it.
fn irregular(kind: FileType) -> Option<String> {
    let (what, remedy) = match kind {
        FileType::RegularFile => return None,
        FileType::Directory => ("a folder", "name a file in it"),
        FileType::Symlink => ("a symbolic link", "name what it leads to"),
        FileType::Fifo => ("a FIFO", "write what comes out of it to a file, and name that"),
        FileType::Socket => ("a socket", "leave it out"),
        FileType::CharacterDevice | FileType::BlockDevice => {
            ("a device", "leave it out, or copy what is on it to a file, and name that")
        }
        _ => ("of an unknown kind", "leave it out"),
    };
    Some(format!("it is {what}, not a regular file: {remedy}"))
}

fn too_long(length: u64, most: u64) -> io::Error {
    io::Error::new(
        ErrorKind::FileTooLarge,
        format!(
            "its {} MiB are more than the {} MiB that can be taken",
            length.div_ceil(1 << 20),
            most >> 20
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn refusal(path: &Path) -> String {
        RegularFile::open(path).and_then(|file| file.read(1 << 20)).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink("fifo", at("link")).unwrap();
        symlink("round", at("round")).unwrap();
        for (path, what) in [
            (at("fifo"), "a FIFO"),
            (at("link"), "a FIFO"),
            (at("socket"), "a socket"),
            (at("."), "a folder"),
            ("/dev/zero".into(), "a device"),
            (at("round"), "symbolic links"),
        ] {
            let reason = refusal(&path);
            assert!(reason.contains(what), "{}: {reason}", path.display());
        }
    }

    #[test]
    fn a_descriptor_keeps_to_what_was_there_when_it_was_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "the file").unwrap();
        let held = PathDescriptor::at(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        assert_eq!(held.open().unwrap().read(100).unwrap(), b"the file");
        let (inside, names) = PathDescriptor::at(folder.path()).unwrap().entries().unwrap();
        let [name] = &names[..] else { panic!("{names:?}") };
        let link = PathDescriptor::inside(&inside, name).unwrap();
        assert!(link.is_link() && !link.is_folder());
        assert_eq!(link.target().unwrap(), Path::new("/dev/zero"));
    }

    #[test]
    fn no_more_is_read_than_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let sparse = folder.path().join("sparse");
        File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
        assert!(refusal(&sparse).contains("4194304 MiB"), "{}", refusal(&sparse));
        let grows = folder.path().join("grows");
        fs::write(&grows, "1234").unwrap();
        let file = RegularFile::open(&grows).unwrap();
        fs::write(&grows, "12345").unwrap();
        assert_eq!(file.read(4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(RegularFile::open(&grows).unwrap().read(5).unwrap(), b"12345");
        // Of the kernel's own files: one that is longer than it says, and one that waits (where there is one).
        assert!(!RegularFile::open(Path::new("/proc/self/stat")).unwrap().read(1 << 20).unwrap().is_empty());
    }
}
