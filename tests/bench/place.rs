//! Where is measured: in the lab machine, or on this host.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use images::layout::{LAB_CACHE, Layout};
use tempfile::TempDir;

/// A machine with counters.
pub(crate) struct Place {
    lab: bool,
    /// Where this program is, and those that were built with it.
    folder: PathBuf,
    layout: Layout,
    /// What the lab machine has of this run: some of it takes half a minute to send.
    sent: Mutex<BTreeSet<String>>,
    /// Where a lab machine beside the usual one is known; it ends with this.
    beside: Option<TempDir>,
}

/// A file or folder for the machine: where it is on this host, and where it goes, below [`FOLDER`].
pub(crate) type Sent = (PathBuf, String);

/// Where files go in the lab machine.
const FOLDER: &str = "/bench";

impl Place {
    pub(crate) fn new(lab: bool) -> Result<Self> {
        let folder = env::current_exe()?.parent().context("this program is in a folder")?.to_owned();
        Ok(Self { lab, folder, layout: Layout::open()?, sent: Mutex::default(), beside: None })
    }

    /// So many, each a lab machine of its own. A machine whose time is counted has one thread, and what it counts does not
    /// depend on what this host does meanwhile.
    pub(crate) fn several(lab: bool, number: usize) -> Result<Vec<Self>> {
        (0..if lab { number.max(1) } else { 1 })
            .map(|index| {
                let beside = (index > 0).then(tempfile::tempdir).transpose()?;
                let mut place = Self::new(lab)?;
                place.beside = beside;
                Ok(place)
            })
            .collect()
    }

    /// The cache with kernels, on this host.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// One of this repository's programs, on this host.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        match env::var_os("PERFVISOR") {
            Some(path) if name == "perfvisor" => path.into(),
            _ => self.folder.join(name),
        }
    }

    /// What is sent, on the machine.
    pub(crate) fn there(&self, (here, name): &Sent) -> String {
        if self.lab { format!("{FOLDER}/{name}") } else { here.display().to_string() }
    }

    /// A series' kernel, on the machine.
    pub(crate) fn kernel(&self, series: &str) -> Result<PathBuf> {
        let image = self.layout.kernel(series);
        let image =
            image.with_context(|| format!("there is no kernel {series}; {}", self.layout.remedy()))?;
        if !self.lab {
            return Ok(image.bzimage);
        }
        let inside = image.bzimage.strip_prefix(self.layout.root()).context("the kernel is in the cache")?;
        Ok(Path::new(LAB_CACHE).join(inside))
    }

    /// After a failure: what was lost may have taken the machine with it.
    pub(crate) fn abandon(&self) {
        self.sent().clear();
        if self.lab {
            // The next one is a new one in any case, or says why there is none.
            let _ = self.perfvisor().args(["lab", "stop"]).status();
        }
    }

    /// `perfvisor`, for the lab of this program.
    fn perfvisor(&self) -> Command {
        let mut command = Command::new(self.program("perfvisor"));
        // On a busy host more of the lab's timers would come in between.
        command.env("PERFVISOR_LAB_TIME", "instructions");
        if let Some(folder) = &self.beside {
            command.env("XDG_RUNTIME_DIR", folder.path());
        }
        command
    }

    fn sent(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `bench WORDS` on the machine, with these files there.
    pub(crate) fn bench(&self, files: &[Sent]) -> Command {
        let bench = (self.program("bench"), "bench".to_owned());
        if !self.lab {
            return Command::new(bench.0);
        }
        let mut command = self.perfvisor();
        command.args(["lab", "exec"]);
        for sent in files.iter().chain([&bench]) {
            if !self.sent().insert(self.there(sent)) {
                continue;
            }
            command.arg("--copy").arg(format!("{}:{}", sent.0.display(), self.there(sent)));
        }
        command.args(["--", &self.there(&bench)]);
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.beside.is_some() {
            self.abandon();
        }
    }
}
