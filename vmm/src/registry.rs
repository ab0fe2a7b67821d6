//! The running machines of this user: one lock file and one control socket each, in one directory.
//!
//! The lock is what counts. The kernel releases it however the VMM ends, so a name is free again at once and a
//! socket without a held lock is known to be a leftover.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// Why the registry could not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that could not be a file's.
    #[error(
        "'{0}' cannot be a machine's name: use 1 to 48 letters, digits, '-', '_' or '.', not beginning with '.'"
    )]
    BadName(String),
    /// Somebody has it.
    #[error(
        "a machine named '{0}' is already running; choose another name with --name, or see 'perfvisor list'"
    )]
    Taken(String),
    /// The directory is somebody else's.
    #[error("{0} does not belong to this user alone; set XDG_RUNTIME_DIR to a private directory")]
    NotPrivate(PathBuf),
    /// The system's refusal.
    #[error("{path}: {error}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// How it was refused.
        error: io::Error,
    },
}

/// The directory, made if it is missing.
pub fn directory() -> Result<PathBuf, Error> {
    let uid = rustix::process::getuid();
    let path = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("perfvisor"),
        _ if uid.is_root() => PathBuf::from("/run/perfvisor"),
        _ => std::env::temp_dir().join(format!("perfvisor-{}", uid.as_raw())),
    };
    let io = |error| Error::Io { path: path.clone(), error };
    DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io)?;
    let metadata = std::fs::symlink_metadata(&path).map_err(io)?;
    if !metadata.is_dir() || metadata.uid() != uid.as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(Error::NotPrivate(path));
    }
    Ok(path)
}

/// A name held by this process, with the control socket that belongs to it. Dropping it gives both up.
#[derive(Debug)]
pub struct Claim {
    name: String,
    socket: PathBuf,
    lock: PathBuf,
    _held: File,
    listener: UnixListener,
}

impl Claim {
    /// Take `name`.
    pub fn new(directory: &Path, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        let lock = directory.join(format!("{name}.lock"));
        let socket = socket_path(directory, name);
        let held = try_lock(&lock)
            .map_err(|error| Error::Io { path: lock.clone(), error })?
            .ok_or_else(|| Error::Taken(name.to_owned()))?;
        // We hold the lock, so a socket that is there is a leftover.
        if let Err(error) = std::fs::remove_file(&socket)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(Error::Io { path: socket, error });
        }
        let listener =
            UnixListener::bind(&socket).map_err(|error| Error::Io { path: socket.clone(), error })?;
        Ok(Self { name: name.to_owned(), socket, lock, _held: held, listener })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The control socket.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Socket first: whoever then takes the lock makes its own.
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_file(&self.lock);
    }
}

/// Where the control socket of `name` is.
pub fn socket_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.sock"))
}

/// Names of the running machines, sorted.
pub fn running(directory: &Path) -> Result<Vec<String>, Error> {
    let io = |error| Error::Io { path: directory.to_owned(), error };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".sock"))
        else {
            continue;
        };
        if check_name(name).is_ok() && is_running(directory, name) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Whether some process holds `name`.
pub fn is_running(directory: &Path, name: &str) -> bool {
    let path = directory.join(format!("{name}.lock"));
    // A shared lock, so that two who look at the same time do not see each other.
    match File::open(&path) {
        Ok(file) => rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(_) => false,
    }
}

/// Lock `path` exclusively; `None` when another holds it.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) if held_for_long(&file) => return Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
        // The last holder may have removed the file between our open and our lock: then we hold a name that
        // nobody can see.
        if std::fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()))
        {
            return Ok(Some(file));
        }
    }
}

/// `is_running` holds a shared lock for an instant; only a lock that stays is a machine's.
fn held_for_long(file: &File) -> bool {
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        if rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return false;
        }
    }
    true
}

fn check_name(name: &str) -> Result<(), Error> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 48 || name.starts_with('.') || !name.chars().all(good) {
        return Err(Error::BadName(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_once_and_free_after() {
        let dir = tempfile::tempdir().unwrap();
        let claim = Claim::new(dir.path(), "vm").unwrap();
        assert!(matches!(Claim::new(dir.path(), "vm"), Err(Error::Taken(_))));
        assert_eq!(running(dir.path()).unwrap(), ["vm"]);
        drop(claim);
        assert!(running(dir.path()).unwrap().is_empty());
        drop(Claim::new(dir.path(), "vm").unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn leftovers_of_a_killed_machine_are_not_running_and_do_not_hold_the_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("vm.lock"), "").unwrap();
        drop(UnixListener::bind(socket_path(dir.path(), "vm")).unwrap());
        assert!(running(dir.path()).unwrap().is_empty());
        Claim::new(dir.path(), "vm").unwrap();
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "../x", "a/b", ".hidden", "a b", &"x".repeat(49)] {
            assert!(matches!(Claim::new(dir.path(), name), Err(Error::BadName(_))), "{name}");
        }
    }
}
