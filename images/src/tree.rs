//! A tree of files that becomes a cpio archive, in the form the kernel unpacks as initramfs ("newc").

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use cpio::NewcBuilder;
use cpio::newc::{ModeFileType, trailer};

/// Folders that are not 0755. A later archive with the same folder sets its mode again: all use this table.
const FOLDER_MODES: [(&str, u32); 2] = [("root", 0o700), ("tmp", 0o1777)];

/// The kernel skips zeros between archives, and each must begin at a multiple of 4; whole sectors are usual.
const PADDING: usize = 512;

/// Files by their path, all owned by root. The same files always give the same bytes.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
}

#[derive(Debug)]
enum Node {
    Folder { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Link { target: PathBuf },
    CharacterDevice { mode: u32, major: u32, minor: u32 },
}

impl Tree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder and its parents; a folder that is there already stays as it is.
    pub fn folder(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = inner(path.as_ref())?;
        let mut folder = PathBuf::new();
        for part in &path {
            folder.push(part);
            let known = FOLDER_MODES.iter().find(|(name, _)| Path::new(name) == folder);
            let mode = known.map_or(0o755, |(_, mode)| *mode);
            let node = self.nodes.entry(folder.clone()).or_insert(Node::Folder { mode });
            if !matches!(node, Node::Folder { .. }) {
                bail!("/{} is a file, so nothing can be below it", folder.display());
            }
        }
        Ok(())
    }

    /// Adds a folder with a mode of its own.
    pub fn folder_with_mode(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = inner(path.as_ref())?;
        self.folder(&path)?;
        // The root and the folders of the table keep their modes, whatever the host's are.
        if path.as_os_str().is_empty() || FOLDER_MODES.iter().any(|(name, _)| Path::new(name) == path) {
            return Ok(());
        }
        self.nodes.insert(path, Node::Folder { mode: mode & 0o7777 });
        Ok(())
    }

    /// Adds a file, or replaces it.
    pub fn file(&mut self, path: impl AsRef<Path>, mode: u32, content: impl Into<Vec<u8>>) -> Result<()> {
        let node = Node::File { mode: mode & 0o7777, content: content.into() };
        self.insert(path.as_ref(), node)
    }

    /// Adds a symbolic link, or replaces it.
    pub fn link(&mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> Result<()> {
        self.insert(path.as_ref(), Node::Link { target: target.into() })
    }

    /// Adds a character device.
    pub fn character_device(
        &mut self,
        path: impl AsRef<Path>,
        mode: u32,
        major: u32,
        minor: u32,
    ) -> Result<()> {
        self.insert(path.as_ref(), Node::CharacterDevice { mode, major, minor })
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether there is anything at this path.
    pub fn contains(&self, path: impl AsRef<Path>) -> bool {
        inner(path.as_ref()).is_ok_and(|path| self.nodes.contains_key(&path))
    }

    /// The archive, padded so that another can follow.
    pub fn to_cpio(&self) -> Result<Vec<u8>> {
        let mut archive = Vec::new();
        for (number, (path, node)) in self.nodes.iter().enumerate() {
            let name = path.to_str().with_context(|| format!("the name {} isn't UTF-8", path.display()))?;
            let entry = NewcBuilder::new(name).ino(number as u32 + 1);
            let (entry, content): (_, &[u8]) = match node {
                Node::Folder { mode } => {
                    (entry.mode(*mode).set_mode_file_type(ModeFileType::Directory).nlink(2), &[])
                }
                Node::File { mode, content } => {
                    (entry.mode(*mode).set_mode_file_type(ModeFileType::Regular), content)
                }
                Node::Link { target } => (
                    entry.mode(0o777).set_mode_file_type(ModeFileType::Symlink),
                    target.as_os_str().as_encoded_bytes(),
                ),
                Node::CharacterDevice { mode, major, minor } => {
                    let entry = entry.mode(*mode).set_mode_file_type(ModeFileType::Char);
                    (entry.rdev_major(*major).rdev_minor(*minor), &[])
                }
            };
            let size = u32::try_from(content.len())
                .with_context(|| format!("/{name} has 4 GiB or more; a cpio archive cannot hold it"))?;
            let mut entry = entry.write(&mut archive, size);
            entry.write_all(content)?;
            entry.finish()?;
        }
        trailer(&mut archive)?;
        archive.resize(archive.len().next_multiple_of(PADDING), 0);
        Ok(archive)
    }

    fn insert(&mut self, path: &Path, node: Node) -> Result<()> {
        let path = inner(path)?;
        let Some(parent) = path.parent() else { bail!("/ is a folder and cannot be replaced") };
        self.folder(parent)?;
        if matches!(self.nodes.get(&path), Some(Node::Folder { .. })) {
            bail!("/{} is a folder and cannot become a file", path.display());
        }
        self.nodes.insert(path, node);
        Ok(())
    }
}

/// A path as the archive has it: below the root, without `.` and `..`.
fn inner(path: &Path) -> Result<PathBuf> {
    let mut inner = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => inner.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                bail!("a path in the guest cannot contain ..: {}", path.display())
            }
        }
    }
    Ok(inner)
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use cpio::NewcReader;

    use super::*;

    fn list(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut cursor = Cursor::new(archive);
        let mut entries = Vec::new();
        loop {
            let mut entry = NewcReader::new(&mut cursor).unwrap();
            if entry.entry().is_trailer() {
                return entries;
            }
            let (name, mode) = (entry.entry().name().to_owned(), entry.entry().mode());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            entries.push((name, mode, content));
            entry.finish().unwrap();
        }
    }

    #[test]
    fn an_archive_reads_back() {
        let mut tree = Tree::new();
        tree.file("/usr/bin/perfex", 0o755, "elf").unwrap();
        tree.link("/bin/sh", "busybox").unwrap();
        tree.folder("/tmp").unwrap();
        tree.character_device("/dev/console", 0o600, 5, 1).unwrap();
        let archive = tree.to_cpio().unwrap();
        assert_eq!(archive.len() % 512, 0);
        let entries = list(&archive);
        let entries: Vec<_> =
            entries.iter().map(|(name, mode, content)| (name.as_str(), *mode, content.as_slice())).collect();
        let nothing: &[u8] = b"";
        assert_eq!(
            entries,
            [
                ("bin", 0o040_755, nothing),
                ("bin/sh", 0o120_777, b"busybox"),
                ("dev", 0o040_755, nothing),
                ("dev/console", 0o020_600, nothing),
                ("tmp", 0o041_777, nothing),
                ("usr", 0o040_755, nothing),
                ("usr/bin", 0o040_755, nothing),
                ("usr/bin/perfex", 0o100_755, b"elf"),
            ]
        );
    }

    #[test]
    fn parents_come_before_their_children() {
        let mut tree = Tree::new();
        for path in ["/a/b/c", "/a-b", "/a/b-c"] {
            tree.file(path, 0o644, "").unwrap();
        }
        let names: Vec<String> = list(&tree.to_cpio().unwrap()).into_iter().map(|(name, ..)| name).collect();
        let place = |name: &str| names.iter().position(|other| other == name).unwrap();
        assert!(place("a") < place("a/b") && place("a/b") < place("a/b/c"), "{names:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut tree = Tree::new();
        tree.file("/etc/passwd", 0o644, "").unwrap();
        assert!(tree.file("/etc/passwd/x", 0o644, "").is_err());
        assert!(tree.file("/etc", 0o644, "").is_err());
        assert!(tree.file("/../x", 0o644, "").is_err());
        assert!(tree.file("/", 0o644, "").is_err());
    }
}
