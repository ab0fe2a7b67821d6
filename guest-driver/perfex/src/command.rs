//! Finding the command's file.
//!
//! Done before the counters start: what a search of PATH costs depends on where the search variable happens to
//! lie in memory, and would make the counts of equal runs differ.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The file to execute for `name`, by the rules of execvp(3): a name with a slash is a path, any other is the
/// first executable file of that name in the folders of PATH.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Ok(PathBuf::from(name));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    find_in(&path, name)
        .with_context(|| format!("{}: command not found in PATH ({})", name.display(), path.display()))
}

fn find_in(path: &OsStr, name: &OsStr) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    env::split_paths(path)
        .map(
            |folder| {
                if folder.as_os_str().is_empty() { Path::new(".").join(name) } else { folder.join(name) }
            },
        )
        .find(|file| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_executable_file_of_the_name() {
        let folders =
            [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        fs::create_dir(folders[0].path().join("tool")).unwrap();
        for (folder, mode) in [(1, 0o644), (2, 0o755)] {
            let file = folders[folder].path().join("tool");
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = env::join_paths(folders.iter().map(|folder| folder.path())).unwrap();
        assert_eq!(find_in(&path, OsStr::new("tool")), Some(folders[2].path().join("tool")));
        assert_eq!(find_in(&path, OsStr::new("no-such-tool")), None);
        assert_eq!(find_in(&path, OsStr::new("")), None);
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        assert_eq!(find(OsStr::new("./nowhere")).unwrap(), PathBuf::from("./nowhere"));
    }
}
