//! The messages about ports that driver and device of a virtio console send each other (virtio 1.2, 5.3).

use std::collections::VecDeque;

/// Name of the port, by which the guest's agent knows it.
pub const PORT_NAME: &str = "perfvisor.session.0";

/// VIRTIO_CONSOLE_F_MULTIPORT, a bit number.
pub(super) const F_MULTIPORT: u32 = 1;

/// `{ u16 cols, u16 rows, u32 max_nr_ports, u32 emerg_wr }`: one port, and the other features are not offered.
pub(super) const CONFIG_SPACE: [u8; 12] = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// Size of a control message: `{ u32 id, u16 event, u16 value }`.
pub(super) const MESSAGE_LEN: usize = 8;

const PORT: u32 = 0;

const DEVICE_READY: u16 = 0;
const PORT_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const PORT_OPEN: u16 = 6;
const PORT_NAME_EVENT: u16 = 7;

/// A driver has no reason to let so many answers wait.
const MAX_WAITING: usize = 64;

/// The state of the conversation.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Messages for the driver.
    waiting: VecDeque<Vec<u8>>,
    /// The guest has the port open.
    open: bool,
}

impl Control {
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The next message for the driver.
    pub(super) fn next_message(&self) -> Option<&[u8]> {
        self.waiting.front().map(Vec::as_slice)
    }

    /// The driver has it.
    pub(super) fn message_sent(&mut self) {
        self.waiting.pop_front();
    }

    /// Acts on a message of the driver. Events it should not send, or that concern other ports, have no effect.
    pub(super) fn handle(&mut self, message: &[u8]) -> Result<(), String> {
        let Some(&[i0, i1, i2, i3, e0, e1, v0, v1]) = message.first_chunk::<MESSAGE_LEN>() else {
            return Err(format!("a control message of {} bytes", message.len()));
        };
        let (id, event) = (u32::from_le_bytes([i0, i1, i2, i3]), u16::from_le_bytes([e0, e1]));
        match (event, u16::from_le_bytes([v0, v1])) {
            (DEVICE_READY, 1) => self.send(PORT_ADD, 1, &[]),
            (PORT_READY, 1) if id == PORT => {
                self.send(PORT_NAME_EVENT, 1, PORT_NAME.as_bytes());
                // Our side is always open.
                self.send(PORT_OPEN, 1, &[]);
            }
            (PORT_OPEN, value) if id == PORT => self.open = value != 0,
            _ => {}
        }
        if self.waiting.len() > MAX_WAITING {
            return Err("the driver takes no answers to its control messages".into());
        }
        Ok(())
    }

    fn send(&mut self, event: u16, value: u16, rest: &[u8]) {
        let mut message = Vec::with_capacity(MESSAGE_LEN + rest.len());
        message.extend(PORT.to_le_bytes());
        message.extend(event.to_le_bytes());
        message.extend(value.to_le_bytes());
        message.extend(rest);
        self.waiting.push_back(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u32, event: u16, value: u16) -> Vec<u8> {
        [&id.to_le_bytes()[..], &event.to_le_bytes(), &value.to_le_bytes()].concat()
    }

    #[test]
    fn introduces_its_port() {
        let mut control = Control::default();
        control.handle(&message(u32::MAX, DEVICE_READY, 1)).unwrap();
        control.handle(&message(PORT, PORT_READY, 1)).unwrap();
        let mut sent = Vec::new();
        while let Some(message) = control.next_message() {
            sent.push(message.to_vec());
            control.message_sent();
        }
        let name = [&message(PORT, PORT_NAME_EVENT, 1)[..], PORT_NAME.as_bytes()].concat();
        assert_eq!(sent, [message(PORT, PORT_ADD, 1), name, message(PORT, PORT_OPEN, 1)]);
        assert!(!control.is_open());
        control.handle(&message(PORT, PORT_OPEN, 1)).unwrap();
        assert!(control.is_open());
        control.handle(&message(PORT + 1, PORT_OPEN, 0)).unwrap();
        assert!(control.is_open());
    }

    #[test]
    fn refuses_short_messages_and_a_flood() {
        let mut control = Control::default();
        assert!(control.handle(&[0; 7]).is_err());
        assert!((0..1000).any(|_| control.handle(&message(0, DEVICE_READY, 1)).is_err()));
    }
}
