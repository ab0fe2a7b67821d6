//! Descriptors that this process was started with.
//!
//! Only the standard streams are meant for it, and what its options name: a shell's `<(..)`, or `/dev/fd/3`.
#![allow(unsafe_code, reason = "descriptors that nothing here owns")]

use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::path::Path;

const FIRST: RawFd = 3;

/// Descriptors that options name, which stay until all files are open.
#[derive(Debug, Default)]
pub struct Named(BTreeSet<RawFd>);

impl Named {
    /// Those among `paths`.
    pub fn among<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        Self(paths.into_iter().filter_map(number).filter(|fd| *fd >= FIRST).collect())
    }

    /// Close all others but the standard streams. Before this process opens anything: they are nobody's.
    pub fn close_others(&self) {
        let mut first = FIRST;
        for named in &self.0 {
            close(first, named - 1);
            first = named + 1;
        }
        close(first, RawFd::MAX);
    }

    /// Close these, when everything that is to be read from them has been opened.
    pub fn close(&self) {
        for named in &self.0 {
            close(*named, *named);
        }
    }
}

fn close(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: nothing in this process owns them; see the callers. An error means that the kernel is older than any
        // that perfvisor runs on, and that they stay open.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// The descriptor that a path names.
fn number(path: &Path) -> Option<RawFd> {
    let path = path.to_str()?;
    let own = format!("/proc/{}/fd/", std::process::id());
    ["/dev/fd/", "/proc/self/fd/", &own]
        .into_iter()
        .find_map(|folder| path.strip_prefix(folder))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_name_descriptors() {
        let own = format!("/proc/{}/fd/7", std::process::id());
        let paths = ["/dev/fd/63", "/proc/self/fd/9", &own, "/dev/fd/1", "/dev/fd/x", "/dev/kvm", "12"];
        assert_eq!(Named::among(paths.map(Path::new)).0, BTreeSet::from([7, 9, 63]));
    }
}
