//! A first-in first-out queue of bytes whose content is always one slice.

/// Bytes waiting to be written or decoded.
#[derive(Debug, Default)]
pub struct ByteQueue {
    bytes: Vec<u8>,
    /// Everything before this index was consumed already. Moving the rest down at every read would make a queue
    /// that is drained in small steps quadratic, so it happens only when at least half of the buffer is dead.
    start: usize,
}

impl ByteQueue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of waiting bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All waiting bytes, oldest first.
    pub fn peek(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops the `count` oldest bytes (all, if there are fewer).
    pub fn consume(&mut self, count: usize) {
        self.start = self.bytes.len().min(self.start.saturating_add(count));
        if self.start == self.bytes.len() {
            self.clear();
        } else if self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    /// Moves up to `buffer.len()` bytes out.
    pub fn take_into(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.peek()[..count]);
        self.consume(count);
        count
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..50), 0usize..60), 0..40)) {
            let mut queue = ByteQueue::new();
            let mut model = std::collections::VecDeque::new();
            for (bytes, consumed) in steps {
                queue.push(&bytes);
                model.extend(bytes);
                queue.consume(consumed);
                model.drain(..consumed.min(model.len()));
                prop_assert_eq!(queue.peek(), model.make_contiguous() as &[u8]);
            }
        }
    }
}
