//! How a test of this suite is made.

use libtest_mimic::Trial;

/// A trial that fails by panicking.
pub(crate) fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}
