//! Says what a long piece of work is doing: one line per step, with the time it took.

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// On a terminal the current line is rewritten at most this often; elsewhere a long step says that it lives.
const REWRITE: Duration = Duration::from_millis(100);
const HEARTBEAT: Duration = Duration::from_secs(30);

/// One step that is under way.
pub struct Step {
    name: String,
    started: Instant,
    terminal: bool,
    shown: RefCell<Instant>,
    finished: bool,
}

impl Step {
    /// Starts a step.
    pub fn begin(name: impl Into<String>) -> Self {
        let now = Instant::now();
        let terminal = io::stderr().is_terminal();
        let step =
            Self { name: name.into(), started: now, terminal, shown: RefCell::new(now), finished: false };
        if terminal {
            step.rewrite("");
        }
        step
    }

    /// Says how far the step is.
    pub fn at(&self, detail: &str) {
        let interval = if self.terminal { REWRITE } else { HEARTBEAT };
        if self.shown.borrow().elapsed() < interval {
            return;
        }
        *self.shown.borrow_mut() = Instant::now();
        if self.terminal {
            self.rewrite(detail);
        } else {
            self.line("...", detail);
        }
    }

    /// Ends the step well.
    pub fn done(mut self, detail: &str) {
        self.finished = true;
        self.line("ok", detail);
    }

    /// How long the step has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn text(&self, state: &str, detail: &str) -> String {
        let seconds = self.elapsed().as_secs_f64();
        let separator = if detail.is_empty() { "" } else { ": " };
        format!("{seconds:7.1} s  {state:<6}  {}{separator}{detail}", self.name)
    }

    fn rewrite(&self, detail: &str) {
        // Too long a line would wrap, and then a carriage return no longer reaches its start.
        let text: String = self.text("...", detail).chars().take(100).collect();
        eprint!("\r\x1b[K{text}");
        let _ = io::stderr().flush();
    }

    fn line(&self, state: &str, detail: &str) {
        let start = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{start}{}", self.text(state, detail));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.finished {
            self.line("FAILED", "");
        }
    }
}
