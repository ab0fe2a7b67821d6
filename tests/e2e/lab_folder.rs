//! Which lab machine a thread's commands use.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;

thread_local! {
    /// `$XDG_RUNTIME_DIR` of this thread's lab machine; the user's own if there is none.
    pub(crate) static FOLDER: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Makes `command` use the lab machine of this thread.
pub(crate) fn choose(command: &mut Command) {
    FOLDER.with_borrow(|folder| {
        if let Some(folder) = folder {
            command.env("XDG_RUNTIME_DIR", folder);
        }
    });
}
