//! Landlock: nothing is left to open.
#![allow(unsafe_code, reason = "the crate does not report the version before a thread is restricted")]

use std::ptr;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreated, RulesetError, Scope};

/// The newest interface that the crate knows; an older kernel enforces what it has of that.
const NEWEST: ABI = ABI::V9;

/// A ruleset that allows nothing that it handles: no file by a path, no TCP, no abstract socket of others. Signals are
/// seccomp's: threads restrict themselves one by one, and could not signal each other.
pub(super) fn ruleset() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::AbstractUnixSocket)?
        .create()
}

/// The version in force here, as far as the crate knows it.
pub(super) fn version() -> Option<u32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no attribute, and only answers a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(version).ok().filter(|version| *version > 0).map(|version| version.min(NEWEST as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_restricts_itself_opens_nothing_where_the_kernel_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let open = move || {
            ruleset().unwrap().restrict_self().unwrap();
            (std::fs::File::open(&path).is_ok(), std::fs::remove_file(&path).is_ok())
        };
        let possible = version().is_none();
        assert_eq!(std::thread::spawn(open).join().unwrap(), (possible, possible));
    }
}
