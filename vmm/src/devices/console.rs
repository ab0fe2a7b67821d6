//! Where the serial console's output goes.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::confinement::{Confinement, Role};

/// How much of the console is kept for error messages.
const KEPT: usize = 16 << 10;
/// Most bytes that wait for a slow file, but for the one that each vCPU may have said at the same time.
const WAITING: usize = 1 << 20;
/// How long a vCPU waits for a slow reader until it looks for other things to do.
const A_LITTLE: Duration = Duration::from_millis(20);
/// How long the end of a machine waits until the file has taken the rest.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// What becomes of output while a mebibyte of it waits for a slow file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It is lost to the file: a guest must not wait for whoever reads its console beside its other output.
    Lose,
    /// The guest waits, for this is its output: whoever wrote last does not enter it while [`Tail::is_full`].
    Wait,
}

/// The last output of the console, for error messages, and how its file fares.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    file: Option<Shared>,
}

impl Tail {
    /// Take no more from the guest, which waits no more either.
    pub fn close(&self) {
        if let Some(file) = &self.file {
            file.finish();
        }
    }

    /// Whether the guest has to wait for the file's reader.
    pub fn is_full(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.full.load(Ordering::Relaxed))
    }

    /// Wait a little for the reader, if the guest has to; whether it still has to.
    pub fn wait(&self) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| self.is_full()) else { return false };
        let full = |_: &mut Waiting| file.full.load(Ordering::Relaxed);
        let waited = file.changed.wait_timeout_while(lock(&file.waiting), A_LITTLE, full);
        drop(waited);
        self.is_full()
    }

    /// Whether nothing more will be written to the file, of which [`Self::close`] is the beginning.
    pub fn is_written(&self) -> bool {
        self.file.as_ref().is_none_or(|file| lock(&file.waiting).written)
    }

    /// Why the file has not taken all, unless its reader left: that is no loss.
    pub fn loss(&self) -> Option<String> {
        lock(&self.file.as_ref()?.waiting).error.clone()
    }

    /// The last `lines` lines.
    pub fn lines(&self, lines: usize) -> String {
        let bytes: Vec<u8> = match self.kept.lock() {
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
    file: Option<Writer>,
}

impl Output {
    /// `file` gets everything; the returned tail the end of it.
    pub fn new(
        file: Option<Box<dyn Write + Send>>,
        when_full: WhenFull,
        confinement: &Confinement,
    ) -> io::Result<(Self, Tail)> {
        let file = file.map(|file| Writer::new(file, when_full, confinement.clone())).transpose()?;
        let shared = file.as_ref().map(|file| Arc::clone(&file.shared));
        let tail = Tail { kept: Arc::default(), file: shared };
        Ok((Self { tail: tail.clone(), file }, tail))
    }

    /// The same tail.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Ok(mut kept) = self.tail.kept.lock() {
            kept.extend(bytes);
            let excess = kept.len().saturating_sub(KEPT);
            kept.drain(..excess);
        }
        if let Some(file) = &self.file {
            file.push(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What waits for the file.
#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    lost: usize,
    /// No more comes, or the file takes no more.
    over: bool,
    /// And what came has been written, as far as it could be.
    written: bool,
    error: Option<String>,
}

/// Between vCPUs and the thread that writes.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Changes while `waiting` is locked.
    full: AtomicBool,
}

type Shared = Arc<Queue>;

impl Queue {
    fn finish(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.over = true;
        self.make_room(waiting);
    }

    /// No guest has to wait any more.
    fn make_room(&self, waiting: MutexGuard<'_, Waiting>) {
        self.full.store(false, Ordering::Relaxed);
        drop(waiting);
        self.changed.notify_all();
    }
}

/// A thread that writes to the file: a pipe or terminal whose reader stands still holds up no vCPU.
struct Writer {
    shared: Shared,
    when_full: WhenFull,
    /// Closes when the thread ends.
    ended: Receiver<()>,
}

impl Writer {
    fn new(
        mut file: Box<dyn Write + Send>,
        when_full: WhenFull,
        confinement: Confinement,
    ) -> io::Result<Self> {
        let shared = Shared::default();
        let (alive, ended) = mpsc::channel::<()>();
        let waiting = Arc::clone(&shared);
        std::thread::Builder::new().name("console".to_owned()).spawn(move || {
            let _alive = alive;
            confinement.enter(Role::Console);
            // A full disk or a closed terminal must not stop the guest: the file is given up, the tail goes on.
            let error = write_all_that_comes(&waiting, &mut file).err();
            let mut end = lock(&waiting.waiting);
            (end.over, end.written) = (true, true);
            end.error = error.filter(|e| e.kind() != io::ErrorKind::BrokenPipe).map(|e| e.to_string());
            waiting.make_room(end);
        })?;
        Ok(Self { shared, when_full, ended })
    }

    fn push(&self, bytes: &[u8]) {
        let mut waiting = lock(&self.shared.waiting);
        if waiting.over {
            return;
        }
        if self.when_full == WhenFull::Wait {
            waiting.bytes.extend(bytes);
            self.shared.full.store(waiting.bytes.len() >= WAITING, Ordering::Relaxed);
        } else if waiting.bytes.len() + bytes.len() > WAITING {
            waiting.lost += bytes.len();
        } else {
            waiting.bytes.extend(bytes);
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.finish();
        // Ends by the thread's end; a file that takes nothing is left to the end of the process.
        let _ = self.ended.recv_timeout(END_PATIENCE);
    }
}

fn write_all_that_comes(shared: &Shared, file: &mut impl Write) -> io::Result<()> {
    loop {
        let mut waiting = lock(&shared.waiting);
        while waiting.bytes.is_empty() && !waiting.over {
            waiting = shared.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let (bytes, lost) = (std::mem::take(&mut waiting.bytes), std::mem::take(&mut waiting.lost));
        shared.make_room(waiting);
        if bytes.is_empty() {
            return Ok(());
        }
        file.write_all(&bytes)?;
        if lost > 0 {
            writeln!(
                file,
                "\r\n[perfvisor: {lost} bytes of the console are lost: its reader was too slow]\r"
            )?;
        }
        file.flush()?;
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // Every change is complete in itself, so a panic between them does no harm.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_bounded_and_ends_with_the_last_lines() {
        let (mut output, tail) = Output::new(None, WhenFull::Lose, &Confinement::none()).unwrap();
        for i in 0..10_000 {
            writeln!(output, "line {i}\r").unwrap();
        }
        assert_eq!(tail.lines(2), "line 9998\nline 9999");
        assert!(tail.lines(usize::MAX).len() <= KEPT);
    }

    /// A file whose reader stands still until the receiver gets a word.
    struct Slow(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Both a word and its sender's end let it go on.
            let _ = self.0.recv();
            self.1.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_holds_up_nobody_and_learns_what_it_missed() {
        let (release, stand_still) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut output, _) = Output::new(
            Some(Box::new(Slow(stand_still, Arc::clone(&written)))),
            WhenFull::Lose,
            &Confinement::none(),
        )
        .unwrap();
        for _ in 0..3 * WAITING / 1024 {
            output.write_all(&[b'x'; 1024]).unwrap();
        }
        drop(release);
        drop(output);
        let written = written.lock().unwrap();
        assert!(written.len() < 3 * WAITING);
        assert!(String::from_utf8_lossy(&written).contains("bytes of the console are lost"));
    }

    #[test]
    fn the_end_does_not_wait_for_ever() {
        let (_release, stand_still) = mpsc::channel();
        let (mut output, _) = Output::new(
            Some(Box::new(Slow(stand_still, Arc::default()))),
            WhenFull::Wait,
            &Confinement::none(),
        )
        .unwrap();
        output.write_all(b"x").unwrap();
        drop(output);
    }

    #[test]
    fn a_file_that_fails_is_given_up() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (mut output, tail) =
            Output::new(Some(Box::new(full)), WhenFull::Wait, &Confinement::none()).unwrap();
        for _ in 0..100 {
            output.write_all(b"line\n").unwrap();
        }
        assert_eq!(tail.lines(1), "line");
        drop(output);
        assert!(tail.is_written() && tail.loss().is_some());
    }

    #[test]
    fn a_guest_that_waits_loses_nothing() {
        let (release, stand_still) = mpsc::channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let slow = Slow(stand_still, Arc::clone(&written));
        let (mut output, tail) =
            Output::new(Some(Box::new(slow)), WhenFull::Wait, &Confinement::none()).unwrap();
        let guest = std::thread::spawn(move || {
            for _ in 0..3 * WAITING / 1024 {
                while output.tail().wait() {}
                output.write_all(&[b'x'; 1024]).unwrap();
            }
            output
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!guest.is_finished(), "it did not wait");
        drop(release);
        let output = guest.join().unwrap();
        tail.close();
        drop(output);
        assert!(tail.is_written());
        assert_eq!((written.lock().unwrap().len(), tail.loss()), (3 * WAITING, None));
    }

    #[test]
    fn a_guest_that_waits_is_let_go_at_the_end() {
        let (_release, stand_still) = mpsc::channel();
        let (mut output, tail) = Output::new(
            Some(Box::new(Slow(stand_still, Arc::default()))),
            WhenFull::Wait,
            &Confinement::none(),
        )
        .unwrap();
        let guest = std::thread::spawn(move || {
            for _ in 0..3 * WAITING / 1024 {
                while output.tail().wait() {}
                output.write_all(&[b'x'; 1024]).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(tail.wait() && !guest.is_finished(), "it did not wait");
        tail.close();
        guest.join().unwrap();
    }
}
