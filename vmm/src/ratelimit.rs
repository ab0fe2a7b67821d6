//! Messages about what a guest does: a guest can make more of them than anybody wants to read.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::say::say_at_once;

/// So many messages are shown in [`INTERVAL`], as the kernel's printk_ratelimit() has it; the others are counted.
const BURST: u32 = 5;
/// See [`BURST`].
const INTERVAL: Duration = Duration::from_secs(5);

/// Messages of one kind.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    begin: Option<Instant>,
    shown: u32,
    /// Not shown, and not reported yet.
    suppressed: u64,
    /// All that were not shown, whether or not they were reported since.
    #[cfg(test)]
    suppressed_ever: u64,
}

impl RateLimit {
    /// Show a message, or count it. Never waits for who reads it.
    pub(crate) fn say(&mut self, text: impl Display) {
        if !self.allows(Instant::now()) {
            self.suppressed += 1;
            #[cfg(test)]
            {
                self.suppressed_ever += 1;
            }
            return;
        }
        let taken = match self.suppressed {
            0 => say_at_once(text),
            more => say_at_once(format_args!("{text} ({more} more before)")),
        };
        self.suppressed = if taken { 0 } else { self.suppressed + 1 };
    }

    fn allows(&mut self, now: Instant) -> bool {
        if self.begin.is_none_or(|begin| now.duration_since(begin) > INTERVAL) {
            (self.begin, self.shown) = (Some(now), 0);
        }
        self.shown += 1;
        self.shown <= BURST
    }

    /// How many were not shown, in whatever time.
    #[cfg(test)]
    pub(crate) fn suppressed_ever(&self) -> u64 {
        self.suppressed_ever
    }
}

impl Drop for RateLimit {
    fn drop(&mut self) {
        if self.suppressed > 0 {
            say_at_once(format_args!("{} more messages like the last", self.suppressed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_shown_in_each_interval() {
        let mut limit = RateLimit::default();
        let begin = Instant::now();
        let shown = |limit: &mut RateLimit, now| (0..1000).filter(|_| limit.allows(now)).count();
        assert_eq!(shown(&mut limit, begin), BURST as usize);
        assert_eq!(shown(&mut limit, begin + INTERVAL), 0);
        assert_eq!(shown(&mut limit, begin + INTERVAL + Duration::from_millis(1)), BURST as usize);
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let mut limit = RateLimit::default();
        for number in 0..1000 {
            limit.say(format_args!("test of the rate limit: message {number}"));
        }
        assert!(limit.suppressed_ever() >= 1000 - u64::from(BURST));
    }
}
