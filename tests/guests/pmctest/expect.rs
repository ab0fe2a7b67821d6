//! Comparing what the kernel answered with what it should have.

use std::fmt::Debug;

use anyhow::{Result, bail, ensure};
use rustix::io::Errno;

/// `answer` must be this refusal.
pub(crate) fn refused<T>(what: &str, answer: Result<T, impl Into<Refusal>>, expected: Errno) -> Result<()> {
    refused_with(what, answer, &[expected])
}

/// `answer` must be one of these refusals.
pub(crate) fn refused_with<T>(
    what: &str,
    answer: Result<T, impl Into<Refusal>>,
    expected: &[Errno],
) -> Result<()> {
    match answer.map_err(|error| error.into().0) {
        Err(errno) if expected.contains(&errno) => Ok(()),
        Err(errno) => bail!("{what}: {errno}, expected {}", list(expected)),
        Ok(_) => bail!("{what}: accepted, expected {}", list(expected)),
    }
}

fn list(errnos: &[Errno]) -> String {
    errnos.iter().map(Errno::to_string).collect::<Vec<_>>().join(" or ")
}

/// Both must be equal.
pub(crate) fn equal<T: PartialEq + Debug>(what: &str, seen: T, expected: T) -> Result<()> {
    ensure!(seen == expected, "{what}: {seen:?}, expected {expected:?}");
    Ok(())
}

/// An error number, from whatever error carries one.
pub(crate) struct Refusal(Errno);

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

impl From<libvperfctr::Error> for Refusal {
    fn from(error: libvperfctr::Error) -> Self {
        Self(error.errno())
    }
}
