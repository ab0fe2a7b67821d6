//! Where the serial console's output goes.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// How much of the console is kept for error messages.
const KEPT: usize = 16 << 10;

/// The last output of the console, for error messages.
#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// The last `lines` lines.
    pub fn lines(&self, lines: usize) -> String {
        let bytes: Vec<u8> = match self.0.lock() {
            Ok(kept) => kept.iter().copied().collect(),
            Err(_) => return String::new(),
        };
        let text = String::from_utf8_lossy(&bytes).replace('\r', "");
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// Writes the console to its file, if it has one, and keeps the tail.
pub struct Output {
    tail: Tail,
    file: Option<Box<dyn Write + Send>>,
}

impl Output {
    /// `file` gets everything; the returned tail the end of it.
    pub fn new(file: Option<Box<dyn Write + Send>>) -> (Self, Tail) {
        let tail = Tail::default();
        (Self { tail: tail.clone(), file }, tail)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Ok(mut kept) = self.tail.0.lock() {
            kept.extend(bytes);
            let excess = kept.len().saturating_sub(KEPT);
            kept.drain(..excess);
        }
        // A full disk or a closed terminal must not stop the guest: the file is given up, the tail goes on.
        if self.file.as_mut().is_some_and(|file| file.write_all(bytes).is_err()) {
            self.file = None;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.file.as_mut().is_some_and(|file| file.flush().is_err()) {
            self.file = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_bounded_and_ends_with_the_last_lines() {
        let (mut output, tail) = Output::new(None);
        for i in 0..10_000 {
            writeln!(output, "line {i}\r").unwrap();
        }
        assert_eq!(tail.lines(2), "line 9998\nline 9999");
        assert!(tail.lines(usize::MAX).len() <= KEPT);
    }
}
