//! Keeping the host's counters with perf.

use std::io;

use super::counter::Counter;

/// An event that is never enabled: it counts nothing and occupies no counter, but as long as there is one, the counters
/// are perf's. The kernel reserves them all when it makes the first event, and gives them back with the last
/// (`x86_reserve_hardware`, arch/x86/events/core.c).
///
/// Perf makes events when a guest counts, and KVM's vPMU does; without this somebody else could take the counters before
/// that.
#[derive(Debug)]
pub struct Hold {
    _event: Counter,
}

/// Keep the counters with perf. `None`: this user may have no event, so that there is none to be kept, or the host has no
/// counters.
///
/// # Errors
/// [`Taken`]: somebody else has the counters.
pub fn hold() -> Result<Option<Hold>, Taken> {
    held(Counter::open_disabled())
}

/// Perf does not have the counters: another kernel module does.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("another kernel module has the host's counters")]
pub struct Taken;

fn held(event: io::Result<Counter>) -> Result<Option<Hold>, Taken> {
    match event {
        Ok(event) => Ok(Some(Hold { _event: event })),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(Taken),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_the_counters_is_an_error() {
        let of = |errno| held(Err(io::Error::from_raw_os_error(errno))).map(|hold| hold.is_some());
        assert_eq!(of(libc::EBUSY), Err(Taken));
        for errno in [libc::EACCES, libc::ENOENT, libc::ENOSYS] {
            assert_eq!(of(errno), Ok(false), "{errno}");
        }
    }
}
