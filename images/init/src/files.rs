//! Files the host puts into the machine.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use session::FileOffer;

/// What this agent stored, and how to see that nobody changed it since.
#[derive(Debug, Default)]
pub struct Stored(Mutex<HashMap<PathBuf, Version>>);

#[derive(Debug, PartialEq, Eq)]
struct Version {
    tag: String,
    len: u64,
    inode: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Version {
    fn of(file: impl AsFd, tag: &str) -> io::Result<Self> {
        let stat = fstat(file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("not a regular file any more"));
        }
        Ok(Self {
            tag: tag.to_owned(),
            len: stat.st_size as u64,
            inode: stat.st_ino,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        })
    }
}

impl Stored {
    /// True if the offered content is at its place already. A program in the machine may have put a link there: the file
    /// whose mode is set is the one that was looked at.
    pub fn has(&self, offer: &FileOffer) -> bool {
        let path = path_of(offer);
        let Ok(there) = open(&path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) else {
            return false;
        };
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = stored
            .get(&path)
            .is_some_and(|known| Version::of(&there, &offer.tag).is_ok_and(|now| now == *known));
        let name = format!("/proc/self/fd/{}", there.as_raw_fd());
        same && fs::set_permissions(name, Permissions::from_mode(offer.mode)).is_ok()
    }

    fn remember(&self, path: PathBuf, file: &File, tag: &str) -> io::Result<()> {
        let version = Version::of(file, tag)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path, version);
        Ok(())
    }
}

fn path_of(offer: &FileOffer) -> PathBuf {
    PathBuf::from(OsString::from_vec(offer.path.0.clone()))
}

/// A file that is arriving, under a name of its own until it is whole: a program that runs from the old file
/// goes on doing so. Dropped early, it leaves nothing behind.
#[derive(Debug)]
pub struct Arriving {
    offer: FileOffer,
    path: PathBuf,
    partial: PathBuf,
    file: File,
    received: u64,
}

impl Arriving {
    /// Prepares the place. `unique` tells apart the files of sessions that run at the same time.
    pub fn begin(offer: FileOffer, unique: u64) -> io::Result<Self> {
        let path = path_of(&offer);
        let (Some(directory), Some(name), true) = (path.parent(), path.file_name(), path.is_absolute())
        else {
            return Err(io::Error::other("not an absolute path of a file"));
        };
        fs::create_dir_all(directory)?;
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(format!(".{unique}.partial"));
        let partial = directory.join(partial);
        // What is there was left by an agent that died, or is a link or a FIFO that a program in the machine has put there: it is
        // not written to.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        Ok(Self { offer, path, partial, file, received: 0 })
    }

    /// Adds bytes.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.received += data.len() as u64;
        if self.received > self.offer.len {
            return Err(io::Error::other(format!(
                "more than the {} bytes that were offered",
                self.offer.len
            )));
        }
        self.file.write_all(data)
    }

    /// Puts the whole file at its place.
    pub fn finish(self, stored: &Stored) -> io::Result<()> {
        if self.received != self.offer.len {
            let (got, offered) = (self.received, self.offer.len);
            return Err(io::Error::other(format!("{got} of {offered} bytes arrived")));
        }
        self.file.set_permissions(Permissions::from_mode(self.offer.mode))?;
        fs::rename(&self.partial, &self.path)?;
        stored.remember(self.path.clone(), &self.file, &self.offer.tag)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // After `finish` the name is gone already.
        let _ = fs::remove_file(&self.partial);
    }
}

/// The path as text for messages.
pub fn display(offer: &FileOffer) -> String {
    std::ffi::OsStr::from_bytes(&offer.path.0).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn stores_remembers_and_notices_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let offer = FileOffer {
            path: session::ByteString(path.as_os_str().as_bytes().to_vec()),
            mode: 0o755,
            len: 5,
            tag: "hello".into(),
        };
        let stored = Stored::default();
        assert!(!stored.has(&offer));
        let mut arriving = Arriving::begin(offer.clone(), 1).unwrap();
        arriving.write(b"hel").unwrap();
        arriving.write(b"lo").unwrap();
        arriving.finish(&stored).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"hello");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
        assert!(stored.has(&offer));
        assert!(!stored.has(&FileOffer { tag: "other".into(), ..offer.clone() }));
        fs::write(&path, b"jello!").unwrap();
        assert!(!stored.has(&offer));

        let mut short = Arriving::begin(offer.clone(), 2).unwrap();
        short.write(b"he").unwrap();
        assert!(short.finish(&stored).is_err());
        let mut long = Arriving::begin(offer, 3).unwrap();
        assert!(long.write(b"hello!").is_err());
        drop(long);
        assert_eq!(fs::read_dir(directory.path().join("a")).unwrap().count(), 1, "no partial file is left");
    }

    /// As a program in the machine may have put it into a folder that is everybody's.
    #[test]
    fn links_and_fifos_at_the_place_are_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let offer = |name: &str| FileOffer {
            path: session::ByteString(at(name).as_os_str().as_bytes().to_vec()),
            mode: 0o777,
            len: 3,
            tag: "new".into(),
        };
        let mode = Mode::RUSR | Mode::WUSR;
        fs::write(at("victim"), "victim").unwrap();
        fs::set_permissions(at("victim"), Permissions::from_mode(0o600)).unwrap();
        symlink("victim", at(".one.1.partial")).unwrap();
        symlink("victim", at("one")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at(".two.1.partial"), FileType::Fifo, mode, 0).unwrap();
        let stored = Stored::default();
        for name in ["one", "two"] {
            let (sender, done) = std::sync::mpsc::channel();
            let arriving = offer(name);
            // Whoever opens a FIFO for writing waits for a reader.
            std::thread::spawn(move || drop(sender.send(Arriving::begin(arriving, 1))));
            let mut arriving = done.recv_timeout(std::time::Duration::from_secs(20)).unwrap().unwrap();
            arriving.write(b"new").unwrap();
            arriving.finish(&stored).unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"new");
            assert!(stored.has(&offer(name)));
        }
        fs::remove_file(at("one")).unwrap();
        symlink("two", at("one")).unwrap();
        assert!(!stored.has(&offer("one")), "a link is not what was stored");
        fs::remove_file(at("two")).unwrap();
        fs::hard_link(at("victim"), at("two")).unwrap();
        assert!(!stored.has(&offer("two")));
        let victim = fs::metadata(at("victim")).unwrap();
        assert_eq!((fs::read(at("victim")).unwrap(), victim.mode() & 0o777), (b"victim".to_vec(), 0o600));
    }
}
