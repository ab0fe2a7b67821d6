//! Frames: `{ u32 length, u8 kind, 3 zero bytes }`, little endian, then `length` bytes of payload.

use thiserror::Error;

use crate::byte_queue::ByteQueue;
use crate::protocol::VERSION;

/// Size of a frame header.
pub const HEADER_LEN: usize = 8;

/// Largest payload. Only a command with a huge environment comes near; data travels in [`DATA_CHUNK`] pieces.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Largest piece of file or stream data in one frame, so that a signal never waits behind much data.
pub const DATA_CHUNK: usize = 32 << 10;

/// What can be wrong with the bytes of a peer, or with what we were asked to send.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// A header announces more than [`MAX_PAYLOAD`], or one was to be sent.
    #[error(
        "a frame of kind {kind:#04x} has {len} bytes, the limit is {MAX_PAYLOAD}; shorten the command line or the environment"
    )]
    TooLong {
        /// Frame kind.
        kind: u8,
        /// Announced length.
        len: usize,
    },
    /// Padding that is not zero: the stream is out of step.
    #[error("the session's byte stream is out of step (header {0:02x?}); end the session and connect again")]
    BadHeader([u8; HEADER_LEN]),
    /// A kind the peer should not send.
    #[error(
        "unknown frame kind {0:#04x}; perfvisor and the agent in the image do not belong together, rebuild the image"
    )]
    UnknownKind(u8),
    /// A payload that does not decode.
    #[error(
        "frame of kind {kind:#04x}: {reason}; perfvisor and the agent in the image do not belong together, rebuild the image"
    )]
    BadPayload {
        /// Frame kind.
        kind: u8,
        /// What the decoder said.
        reason: String,
    },
    /// The agent speaks another version.
    #[error("the agent in the image speaks session version {theirs}, perfvisor speaks {ours}; rebuild the image", ours = VERSION)]
    Version {
        /// The agent's version.
        theirs: u32,
    },
    /// A frame that has no place in the present state.
    #[error("unexpected {what} while {state}")]
    Unexpected {
        /// The frame.
        what: &'static str,
        /// The state it arrived in.
        state: &'static str,
    },
}

/// One frame as received.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// Meaning of the payload, see [`crate::message`].
    pub kind: u8,
    /// The payload.
    pub payload: Vec<u8>,
}

/// Appends one frame to `out`.
pub fn put_frame(out: &mut ByteQueue, kind: u8, payload: &[u8]) -> Result<(), ProtocolError> {
    if payload.len() > MAX_PAYLOAD {
        return Err(ProtocolError::TooLong { kind, len: payload.len() });
    }
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4] = kind;
    out.push(&header);
    out.push(payload);
    Ok(())
}

/// Takes a byte stream apart into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: ByteQueue,
}

impl Decoder {
    /// Adds received bytes. Callers take all frames out before they add more, so one frame bounds the buffer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.push(bytes);
    }

    /// Forgets what is buffered.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The next complete frame. After an error the stream has no meaning any more.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ProtocolError> {
        let bytes = self.bytes.peek();
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let [l0, l1, l2, l3, kind, 0, 0, 0] = *header else { return Err(ProtocolError::BadHeader(*header)) };
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if len > MAX_PAYLOAD {
            return Err(ProtocolError::TooLong { kind, len });
        }
        let Some(payload) = rest.get(..len) else { return Ok(None) };
        let frame = Frame { kind, payload: payload.to_vec() };
        self.bytes.consume(HEADER_LEN + len);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refuses_what_cannot_be() {
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 0x7f, 1, 0, 0, 0]);
        assert!(matches!(decoder.next_frame(), Err(ProtocolError::TooLong { kind: 1, .. })));
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 0, 1, 0, 9, 0]);
        assert!(matches!(decoder.next_frame(), Err(ProtocolError::BadHeader(_))));
        let mut out = ByteQueue::new();
        assert!(put_frame(&mut out, 1, &vec![0; MAX_PAYLOAD + 1]).is_err());
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn survives_any_cutting(
            frames in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..300)), 0..20),
            cut in 1usize..97,
        ) {
            let mut out = ByteQueue::new();
            for (kind, payload) in &frames {
                put_frame(&mut out, *kind, payload).unwrap();
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in out.peek().chunks(cut) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push((frame.kind, frame.payload));
                }
            }
            prop_assert_eq!(seen, frames);
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }
}
