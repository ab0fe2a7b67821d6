//! The beginning of a session.
//!
//! A stream outlives its sessions: the client before us may have died in the middle of a frame, and what its
//! program printed may still be on the way. So the host begins with a preamble, [`MAGIC`] and a random nonce, and
//! throws away everything up to the agent's echo of that nonce. The agent looks for the magic in all it receives,
//! in the middle of frames too; in a valid stream it never occurs, because data that contains it is cut into two
//! frames there, JSON never contains the byte 0xff, and no part of a header can belong to it (it has no zero
//! byte, a header ends with three and its length ends with one).

use crate::byte_queue::ByteQueue;
use crate::frame::{Decoder, ProtocolError};
use crate::message::ToGuest;
use crate::preamble::{MAGIC, NONCE_LEN, Nonce, PREAMBLE_LEN, echo};

/// What the agent receives.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A new session begins: end the old one, then send [`echo`] of this nonce.
    Reset(Nonce),
    /// A message of the present session.
    Message(ToGuest),
}

/// The agent's receiving side: finds preambles and decodes what follows them.
#[derive(Debug, Default)]
pub struct GuestReceiver {
    /// How much of the magic the last bytes matched.
    matched: usize,
    /// The nonce, while it arrives.
    nonce: Option<Vec<u8>>,
    reset: Option<Nonce>,
    /// False until the first preamble and after an error: bytes without meaning are dropped.
    synced: bool,
    decoder: Decoder,
}

impl GuestReceiver {
    /// Adds received bytes; take all of [`Self::next_received`] afterwards.
    ///
    /// Bytes are not held back while they might begin a magic: the last byte of someone's input may be 0xff.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = self.find_magic(bytes) {
            self.deliver(&bytes[..end]);
            self.decoder.clear();
            self.nonce = Some(Vec::with_capacity(NONCE_LEN));
            bytes = &bytes[end..];
        }
        self.deliver(bytes);
    }

    /// Where the next magic ends, which may have begun in bytes seen before.
    fn find_magic(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            if self.matched == 0 {
                at += bytes[at..].iter().position(|&byte| byte == MAGIC[0])? + 1;
                self.matched = 1;
            } else if bytes[at] == MAGIC[self.matched] {
                at += 1;
                self.matched += 1;
                if self.matched == MAGIC.len() {
                    self.matched = 0;
                    return Some(at);
                }
            } else {
                // The same byte may be the first of a magic: look at it again.
                self.matched = 0;
            }
        }
        None
    }

    fn deliver(&mut self, mut bytes: &[u8]) {
        if let Some(mut nonce) = self.nonce.take() {
            let part;
            (part, bytes) = bytes.split_at(bytes.len().min(NONCE_LEN - nonce.len()));
            nonce.extend_from_slice(part);
            match Nonce::try_from(nonce) {
                Ok(nonce) => {
                    self.reset = Some(nonce);
                    self.synced = true;
                }
                Err(partial) => {
                    self.nonce = Some(partial);
                    return;
                }
            }
        }
        if self.synced {
            self.decoder.push(bytes);
        }
    }

    /// The next thing that arrived. After an error everything up to the next preamble is dropped.
    pub fn next_received(&mut self) -> Result<Option<Received>, ProtocolError> {
        if let Some(nonce) = self.reset.take() {
            return Ok(Some(Received::Reset(nonce)));
        }
        let message = self.decoder.next_frame().and_then(|frame| frame.map(ToGuest::decode).transpose());
        if message.is_err() {
            self.synced = false;
            self.decoder.clear();
        }
        Ok(message?.map(Received::Message))
    }
}

/// The host's search for the echo of its nonce.
#[derive(Debug)]
pub(crate) struct EchoSearch {
    wanted: [u8; PREAMBLE_LEN],
    seen: ByteQueue,
}

impl EchoSearch {
    pub(crate) fn new(nonce: &Nonce) -> Self {
        Self { wanted: echo(nonce), seen: ByteQueue::new() }
    }

    /// Looks at more bytes; once the echo was found, returns those behind it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.seen.push(bytes);
        let seen = self.seen.peek();
        if let Some(at) = seen.windows(PREAMBLE_LEN).position(|window| window == self.wanted) {
            return Some(seen[at + PREAMBLE_LEN..].to_vec());
        }
        let stale = seen.len().saturating_sub(PREAMBLE_LEN - 1);
        self.seen.consume(stale);
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::preamble::preamble;

    fn receive(receiver: &mut GuestReceiver, bytes: &[u8], cut: usize) -> Vec<Received> {
        let mut all = Vec::new();
        for piece in bytes.chunks(cut) {
            receiver.push(piece);
            while let Ok(Some(received)) = receiver.next_received() {
                all.push(received);
            }
        }
        all
    }

    /// Input that contains the magic, whole and in parts, more often than chance would.
    fn input() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                (0usize..=16).prop_map(|len| MAGIC[..len].to_vec()),
                (0usize..=16).prop_map(|from| MAGIC[from..].to_vec()),
            ],
            0..12,
        )
        .prop_map(|parts| parts.concat())
    }

    #[test]
    fn magic_has_the_properties_the_search_needs() {
        assert!(!MAGIC.contains(&0));
        assert_eq!(MAGIC.iter().filter(|&&byte| byte == MAGIC[0]).count(), 1);
    }

    proptest! {
        #[test]
        fn data_never_looks_like_a_preamble(data in input(), cut in 1usize..50) {
            let mut out = ByteQueue::new();
            out.push(&preamble(&[7; 16]));
            ToGuest::encode_stdin(&mut out, &data).unwrap();
            ToGuest::StdinEof.encode(&mut out).unwrap();
            let mut received = receive(&mut GuestReceiver::default(), out.peek(), cut).into_iter();
            prop_assert_eq!(received.next(), Some(Received::Reset([7; 16])));
            let mut arrived = Vec::new();
            let mut ended = false;
            for item in received {
                match item {
                    Received::Message(ToGuest::Stdin(piece)) => arrived.extend(piece),
                    Received::Message(ToGuest::StdinEof) => ended = true,
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert!(ended);
            prop_assert_eq!(arrived, data);
        }

        #[test]
        fn a_preamble_is_found_behind_a_frame_cut_anywhere(data in input(), keep in 0usize..400, cut in 1usize..50) {
            let mut old = ByteQueue::new();
            old.push(&preamble(&[1; 16]));
            ToGuest::encode_file_data(&mut old, &data).unwrap();
            let mut stream = old.peek()[..old.len().min(keep)].to_vec();
            stream.extend(preamble(&[2; 16]));
            let mut new = ByteQueue::new();
            ToGuest::Signal(15).encode(&mut new).unwrap();
            stream.extend(new.peek());
            let received = receive(&mut GuestReceiver::default(), &stream, cut);
            let reset = received.iter().rposition(|item| *item == Received::Reset([2; 16])).unwrap();
            prop_assert_eq!(&received[reset + 1..], &[Received::Message(ToGuest::Signal(15))]);
        }

        #[test]
        fn echo_is_found_in_noise(noise in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..70) {
            let mut stream = noise;
            stream.extend(echo(&[9; 16]));
            let end = stream.len();
            stream.extend(b"rest");
            let mut search = EchoSearch::new(&[9; 16]);
            let mut fed = 0;
            for piece in stream.chunks(cut) {
                fed += piece.len();
                if let Some(rest) = search.push(piece) {
                    prop_assert_eq!(&rest[..], &stream[end..fed]);
                    return Ok(());
                }
            }
            prop_assert!(false, "not found");
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..600), cut in 1usize..70) {
            let mut receiver = GuestReceiver::default();
            receiver.push(&preamble(&[3; 16]));
            for piece in noise.chunks(cut) {
                receiver.push(piece);
                for _ in 0..100 {
                    if !matches!(receiver.next_received(), Ok(Some(_))) { break }
                }
            }
        }
    }
}
