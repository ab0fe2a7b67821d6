//! Signals that are the command's rather than perfvisor's.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// So many requests to end, within [`INSISTENCE`], are meant for perfvisor: the command, or its machine, does not listen.
const ENOUGH: u32 = 3;
/// See [`ENOUGH`].
const INSISTENCE: Duration = Duration::from_secs(5);

/// Catches SIGINT, SIGTERM, SIGHUP and SIGQUIT.
#[derive(Debug)]
pub struct Signals {
    pipes: Vec<(i32, UnixStream)>,
    requests: Requests,
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caught {
    /// The command decides what it means.
    ForCommand(i32),
    /// Its sender has lost patience with the command.
    ForPerfvisor(i32),
}

impl Signals {
    /// Begins to catch them.
    pub fn new() -> io::Result<Self> {
        let watch = |signal| {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, theirs)?;
            Ok((signal, ours))
        };
        let pipes = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].map(watch).into_iter().collect::<io::Result<_>>()?;
        Ok(Self { pipes, requests: Requests::default() })
    }

    /// Descriptors that are readable when a signal came.
    pub fn pipes(&self) -> impl Iterator<Item = &UnixStream> {
        self.pipes.iter().map(|(_, pipe)| pipe)
    }

    /// A signal that came.
    pub fn caught(&mut self) -> Option<Caught> {
        for (signal, pipe) in &self.pipes {
            let mut bytes = [0; 64];
            // A byte for each time it came.
            if let Ok(times @ 1..) = (&mut &*pipe).read(&mut bytes) {
                let insists = matches!(*signal, SIGINT | SIGTERM)
                    && self.requests.are_enough(times as u32, Instant::now());
                return Some(if insists {
                    Caught::ForPerfvisor(*signal)
                } else {
                    Caught::ForCommand(*signal)
                });
            }
        }
        None
    }
}

/// Requests to end, counted while they come soon enough.
#[derive(Debug, Default)]
struct Requests {
    first: Option<Instant>,
    count: u32,
}

impl Requests {
    fn are_enough(&mut self, times: u32, now: Instant) -> bool {
        if self.first.is_none_or(|first| now.duration_since(first) > INSISTENCE) {
            *self = Self { first: Some(now), count: 0 };
        }
        self.count = self.count.saturating_add(times);
        self.count >= ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quick_repetition_insists() {
        let mut requests = Requests::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let seen: Vec<bool> =
            [0, 6, 12, 13, 14, 15].map(|second| requests.are_enough(1, at(second))).into_iter().collect();
        assert_eq!(seen, [false, false, false, false, true, true]);
        assert!(Requests::default().are_enough(3, begin), "all at once");
    }
}
