//! Moves bytes between queues and buffers.

use std::io::{Read, Write};

use virtio_queue::{Queue, QueueOwnedT, QueueT, Reader, Writer};
use vm_memory::GuestMemoryMmap;

/// Receive and transmit of the port, then of the control channel.
pub(super) const QUEUE_COUNT: usize = 4;
pub(super) const RX: usize = 0;
pub(super) const TX: usize = 1;
pub(super) const CONTROL_RX: usize = 2;
pub(super) const CONTROL_TX: usize = 3;

/// Largest queue offered.
pub(super) const QUEUE_SIZE: u16 = 256;

/// Longest buffer accepted from the driver. Linux sends at most 128 KiB at once; descriptors that name the same
/// memory again and again could claim terabytes.
const MAX_BUFFER: usize = 1 << 20;

/// How one look at a queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// A buffer was used.
    One,
    /// The driver offers none; it will notify.
    None,
}

/// Why a queue cannot be used, in words.
type Failure = String;

fn failure(error: impl std::fmt::Display) -> Failure {
    error.to_string()
}

/// True if the queue can be used; false if the driver has not set it up.
pub(super) fn usable(queue: &Queue, memory: &GuestMemoryMmap) -> Result<bool, Failure> {
    if !queue.ready() {
        return Ok(false);
    }
    if queue.is_valid(memory) { Ok(true) } else { Err("a queue outside of memory".into()) }
}

/// Takes one buffer and hands its chain's head and the chain to `use_buffer`, which returns the length it wrote.
fn take_one(
    queue: &mut Queue,
    memory: &GuestMemoryMmap,
    use_buffer: impl FnOnce(virtio_queue::DescriptorChain<&GuestMemoryMmap>) -> Result<u32, Failure>,
) -> Result<Taken, Failure> {
    loop {
        let chain = queue.iter(memory).map_err(failure)?.next();
        if let Some(chain) = chain {
            let head = chain.head_index();
            let written = use_buffer(chain)?;
            queue.add_used(memory, head, written).map_err(failure)?;
            return Ok(Taken::One);
        }
        // A buffer that came while notifications were off is found here.
        if !queue.enable_notification(memory).map_err(failure)? {
            return Ok(Taken::None);
        }
    }
}

/// Takes one buffer from the driver and hands its bytes to `sink`.
pub(super) fn take(
    queue: &mut Queue,
    memory: &GuestMemoryMmap,
    sink: impl FnOnce(&[u8]) -> Result<(), Failure>,
) -> Result<Taken, Failure> {
    take_one(queue, memory, |chain| {
        let mut reader: Reader<'_, ()> = Reader::new(memory, chain).map_err(failure)?;
        let len = reader.available_bytes();
        if len > MAX_BUFFER {
            return Err(format!("a buffer of {len} bytes, more than {MAX_BUFFER}"));
        }
        let mut bytes = vec![0; len];
        reader.read_exact(&mut bytes).map_err(failure)?;
        sink(&bytes)?;
        Ok(0)
    })
}

/// Fills one of the driver's buffers from `bytes`; returns how many of them it took.
pub(super) fn fill(
    queue: &mut Queue,
    memory: &GuestMemoryMmap,
    bytes: &[u8],
) -> Result<(Taken, usize), Failure> {
    let mut count = 0;
    let taken = take_one(queue, memory, |chain| {
        let mut writer: Writer<'_, ()> = Writer::new(memory, chain).map_err(failure)?;
        count = bytes.len().min(writer.available_bytes());
        writer.write_all(&bytes[..count]).map_err(failure)?;
        Ok(count as u32)
    })?;
    Ok((taken, count))
}
