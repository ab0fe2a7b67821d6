//! The running machines of this user: one lock file and one control socket each, in one directory.
//!
//! The lock is what counts. The kernel releases it however the VMM ends, so a name is free again at once and a
//! socket without a held lock is known to be a leftover.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::private_socket::private_listener;

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
    /// Others could connect to the machines in this directory, or put something into their place.
    #[error("{} {reason}", .path.display())]
    NotPrivate {
        /// The directory, or the one it is in.
        path: PathBuf,
        /// What is wrong, and the remedy.
        reason: String,
    },
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
        // As the specification has it: what is not absolute does not count.
        Some(dir) if Path::new(&dir).is_absolute() => PathBuf::from(dir).join("perfvisor"),
        _ if uid.is_root() => PathBuf::from("/run/perfvisor"),
        _ => std::env::temp_dir().join(format!("perfvisor-{}", uid.as_raw())),
    };
    directory_in(&path)
}

/// The directory at `path`, private to this user.
fn directory_in(path: &Path) -> Result<PathBuf, Error> {
    let uid = rustix::process::getuid().as_raw();
    let io = |error| Error::Io { path: path.to_owned(), error };
    let refuse = |path: &Path, reason: String| Err(Error::NotPrivate { path: path.to_owned(), reason });
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io)?;
    // Whoever may rename it can put another in its place at any time; not so in a sticky directory, such as /tmp.
    let parent = path.parent().unwrap_or(Path::new("/"));
    let above = std::fs::metadata(parent).map_err(io)?;
    let sticky = above.mode() & 0o1000 != 0;
    if !sticky && (above.mode() & 0o022 != 0 || ![0, uid].contains(&above.uid())) {
        let whose = if above.mode() & 0o022 != 0 { "can be written by others" } else { "is another user's" };
        return refuse(parent, format!("{whose}: set XDG_RUNTIME_DIR to a private directory, or unset it"));
    }
    let own = std::fs::symlink_metadata(path).map_err(io)?;
    if own.is_symlink() {
        return refuse(path, "is a symbolic link: remove it".to_owned());
    }
    if !own.is_dir() || own.uid() != uid {
        return refuse(
            path,
            "is not a directory of this user's: remove it, or set XDG_RUNTIME_DIR to a private directory"
                .to_owned(),
        );
    }
    if own.mode() & 0o077 != 0 {
        let reason =
            format!("is open to others (mode {:o}): chmod 700 {}", own.mode() & 0o7777, path.display());
        return refuse(path, reason);
    }
    Ok(path.to_owned())
}

/// A name held by this process, with the control socket that belongs to it. Dropping it gives both up; their files it
/// removes unless it may not ([`Claim::leave_files`]).
#[derive(Debug)]
pub struct Claim {
    name: String,
    socket: PathBuf,
    lock: PathBuf,
    _held: File,
    listener: UnixListener,
    leaves_files: AtomicBool,
}

impl Claim {
    /// Take `name`.
    pub fn new(directory: &Path, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        remove_leftovers(directory);
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
            private_listener(&socket).map_err(|error| Error::Io { path: socket.clone(), error })?;
        Ok(Self {
            name: name.to_owned(),
            socket,
            lock,
            _held: held,
            listener,
            leaves_files: AtomicBool::new(false),
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// This process may remove no file any more. Without a held lock they mean nothing, and the next machine that takes a name
    /// here, or a list, removes them.
    pub fn leave_files(&self) {
        self.leaves_files.store(true, Ordering::Relaxed);
    }

    /// The control socket.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.leaves_files.load(Ordering::Relaxed) {
            return;
        }
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
    remove_leftovers(directory);
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

/// Remove the files of machines that are gone.
fn remove_leftovers(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let lock = entry.path();
        let name = lock.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".lock"));
        let Some(name) = name.filter(|name| check_name(name).is_ok()) else { continue };
        // Who just begins to take the name finds its file gone, and makes another.
        if let Ok(file) = File::open(&lock)
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // Socket first: whoever then takes the lock makes its own.
            let _ = std::fs::remove_file(socket_path(directory, name));
            let _ = std::fs::remove_file(&lock);
        }
    }
}

/// Whether some process holds `name`.
pub fn is_running(directory: &Path, name: &str) -> bool {
    let path = directory.join(format!("{name}.lock"));
    // A shared lock, so that two who look at the same time do not see each other.
    let is_held = || {
        File::open(&path)
            .is_ok_and(|file| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err())
    };
    // Who removes leftovers holds them for an instant.
    is_held() && {
        std::thread::sleep(Duration::from_millis(2));
        is_held()
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
        std::thread::sleep(Duration::from_millis(5));
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
    use std::os::unix::fs::PermissionsExt;

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

    /// Whoever may connect may ask; the folder alone does not keep others out, for it may be given to them.
    #[test]
    fn the_control_socket_is_the_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        let claim = Claim::new(dir.path(), "vm").unwrap();
        let mode = std::fs::metadata(socket_path(dir.path(), "vm")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
        assert!(claim.listener().local_addr().is_ok());
    }

    #[test]
    fn a_folder_that_others_can_look_into_is_refused_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let make = |path: &Path, mode: u32| {
            std::fs::create_dir(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for mode in [0o755, 0o750, 0o710, 0o777] {
            let open = at(&format!("{mode:o}"));
            make(&open, 0o700);
            make(&open.join("perfvisor"), mode);
            let refused = directory_in(&open.join("perfvisor")).unwrap_err().to_string();
            assert!(refused.contains("chmod 700"), "{mode:o}: {refused}");
        }
        make(&at("linked"), 0o700);
        std::os::unix::fs::symlink(dir.path(), at("linked/perfvisor")).unwrap();
        assert!(directory_in(&at("linked/perfvisor")).unwrap_err().to_string().contains("link"));
        make(&at("file"), 0o700);
        std::fs::write(at("file/perfvisor"), "").unwrap();
        assert!(directory_in(&at("file/perfvisor")).is_err());
        // Whoever can rename the folder can put another in its place.
        make(&at("shared"), 0o777);
        let refused = directory_in(&at("shared/perfvisor")).unwrap_err().to_string();
        assert!(refused.contains("XDG_RUNTIME_DIR"), "{refused}");
        make(&at("sticky"), 0o1777);
        let made = directory_in(&at("sticky/perfvisor")).unwrap();
        assert_eq!(std::fs::metadata(made).unwrap().mode() & 0o7777, 0o700);
        assert!(directory_in(&at("sticky/perfvisor")).is_ok(), "the second time");
    }

    #[test]
    fn what_a_confined_machine_left_goes_with_the_next_claim_or_list() {
        let dir = tempfile::tempdir().unwrap();
        let files = || std::fs::read_dir(dir.path()).unwrap().count();
        let leave = |name| Claim::new(dir.path(), name).unwrap().leave_files();
        leave("one");
        assert_eq!(files(), 2);
        let other = Claim::new(dir.path(), "other").unwrap();
        assert_eq!((files(), running(dir.path()).unwrap()), (2, vec!["other".to_owned()]));
        drop(other);
        leave("three");
        std::fs::create_dir(dir.path().join("lab")).unwrap();
        assert!(running(dir.path()).unwrap().is_empty());
        assert_eq!(files(), 1, "and nothing else");
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", ".", "..", "../x", "a/b", ".hidden", "a b", &"x".repeat(49)] {
            assert!(matches!(Claim::new(dir.path(), name), Err(Error::BadName(_))), "{name}");
        }
    }
}
