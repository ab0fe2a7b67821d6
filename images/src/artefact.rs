//! Artefacts under content keys: built exactly when an input changed, and only ever seen whole.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// The hash of everything an artefact is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

/// Collects the inputs of an artefact.
pub struct Inputs(Sha256);

impl Inputs {
    /// Starts with the name of the recipe and its version, to be raised when the recipe itself changes.
    pub fn of(recipe: &str, version: u32) -> Self {
        Self(Sha256::new()).text(recipe).text(&version.to_string())
    }

    /// Adds a string. Lengths go in too, so that two neighbours cannot trade characters unseen.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// Adds the key of another artefact this one is made from.
    #[must_use]
    pub fn key(self, key: &Key) -> Self {
        self.text(&key.0)
    }

    /// Adds a file's content.
    pub fn file(self, path: &Path) -> Result<Self> {
        Ok(self.text(&sha256(path)?))
    }

    /// Adds the names and contents of all files in a folder, recursively.
    pub fn folder(mut self, path: &Path) -> Result<Self> {
        for file in files_below(path)? {
            let name = file.strip_prefix(path).unwrap_or(&file).to_string_lossy().into_owned();
            self = self.text(&name).file(&file)?;
        }
        Ok(self)
    }

    /// The key.
    pub fn finish(self) -> Key {
        Key(hex(&self.0.finalize()))
    }
}

/// Makes sure that `path` holds the artefact with this key. `build` makes it, a file or a folder, at the scratch
/// path it is given, which is renamed to `path` when it succeeds. Says whether anything was built.
pub fn ensure(path: &Path, key: &Key, build: impl FnOnce(&Path) -> Result<()>) -> Result<bool> {
    if is_current(path, key) {
        return Ok(false);
    }
    let parent = path.parent().with_context(|| format!("{} has no parent folder", path.display()))?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    // A sibling, so that the rename stays in one file system. What a killed set-up left there goes first.
    let scratch = sibling(path, ".new");
    remove(&scratch)?;
    build(&scratch)?;
    // The stamp goes before the artefact and comes back after it: killed in between, it is built again.
    let stamp = sibling(path, ".key");
    remove(&stamp)?;
    remove(path)?;
    rename(&scratch, path)?;
    let fresh = sibling(path, ".key.new");
    fs::write(&fresh, &key.0).with_context(|| format!("cannot write {}", fresh.display()))?;
    rename(&fresh, &stamp)?;
    Ok(true)
}

/// Whether the artefact exists and was made from these inputs.
pub fn is_current(path: &Path, key: &Key) -> bool {
    path.exists() && fs::read_to_string(sibling(path, ".key")).is_ok_and(|stamp| stamp == key.0)
}

/// The SHA-256 of a file, in hexadecimal.
pub fn sha256(path: &Path) -> Result<String> {
    let hash = || -> io::Result<String> {
        let mut file = fs::File::open(path)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hex(&hasher.finalize())),
                count => hasher.update(&buffer[..count]),
            }
        }
    };
    hash().with_context(|| format!("cannot read {}", path.display()))
}

/// All regular files below a folder, sorted.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(next) = pending.pop() {
        let entries = fs::read_dir(&next).with_context(|| format!("cannot list {}", next.display()))?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Removes a file or a folder, if it is there.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.with_context(|| format!("cannot remove {}", path.display())),
    }
}

/// Renames with both names in the error.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().map(OsString::from).unwrap_or_default();
    name.push(suffix);
    path.with_file_name(name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_once_per_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("6.12");
        let key = |version| Inputs::of("test", version).text("a").finish();
        let write = |text: &'static str| move |to: &Path| Ok(fs::write(to, text)?);
        assert!(ensure(&path, &key(1), write("one")).unwrap());
        assert!(!ensure(&path, &key(1), |_| panic!("is current")).unwrap());
        assert!(ensure(&path, &key(2), write("two")).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    }

    #[test]
    fn a_failed_build_leaves_the_old_artefact() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let (old, new) = (Inputs::of("test", 1).finish(), Inputs::of("test", 2).finish());
        let build = |text: &'static str| {
            move |to: &Path| {
                fs::create_dir(to)?;
                Ok(fs::write(to.join("file"), text)?)
            }
        };
        ensure(&path, &old, build("old")).unwrap();
        let failed = ensure(&path, &new, |to| {
            build("half")(to)?;
            anyhow::bail!("power cut")
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "old");
        assert!(is_current(&path, &old));
        ensure(&path, &new, build("new")).unwrap();
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing but the artefact and its stamp");
    }

    #[test]
    fn an_artefact_without_its_stamp_is_built_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        fs::write(&path, "from a killed set-up").unwrap();
        let key = Inputs::of("test", 1).finish();
        assert!(ensure(&path, &key, |to| Ok(fs::write(to, "whole")?)).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
    }

    #[test]
    fn inputs_do_not_run_into_each_other() {
        let a = Inputs::of("test", 1).text("ab").text("c").finish();
        let b = Inputs::of("test", 1).text("a").text("bc").finish();
        assert_ne!(a, b);
    }
}
