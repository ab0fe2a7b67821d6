//! Files the host puts into the machine.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
    fn of(path: &Path, tag: &str) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self {
            tag: tag.to_owned(),
            len: meta.len(),
            inode: meta.ino(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

impl Stored {
    /// True if the offered content is at its place already.
    pub fn has(&self, offer: &FileOffer) -> bool {
        let path = path_of(offer);
        let stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stored.get(&path).is_some_and(|known| Version::of(&path, &offer.tag).is_ok_and(|now| now == *known))
            && fs::set_permissions(&path, Permissions::from_mode(offer.mode)).is_ok()
    }

    fn remember(&self, path: PathBuf, tag: &str) -> io::Result<()> {
        let version = Version::of(&path, tag)?;
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
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
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
        stored.remember(self.path.clone(), &self.offer.tag)
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
}
