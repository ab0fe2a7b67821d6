//! The port bus: a serial port and the ways by which a guest stops its machine.

use std::sync::Mutex;

use vm_superio::{Serial, Trigger, serial::NoEvents};
use vmm_sys_util::eventfd::EventFd;

use super::console::Output;
use crate::machine::layout;

/// Why a guest's machine stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The guest switched it off.
    PowerOff,
    /// The guest, or a triple fault, reset it.
    Reset,
    /// It cannot go on.
    Failed(String),
}

/// SLP_EN and the sleep type in the ACPI sleep control register (ACPI 6.5, table 4.17).
const SLEEP_ENABLE: u8 = 1 << 5;
const SLEEP_TYPE_SHIFT: u8 = 2;

/// An interrupt line.
pub struct Line(pub EventFd);

impl Trigger for Line {
    type E = std::io::Error;

    fn trigger(&self) -> Result<(), Self::E> {
        self.0.write(1)
    }
}

/// The bus.
pub struct Ports {
    serial: Mutex<Serial<Line, NoEvents, Output>>,
}

impl Ports {
    /// A bus whose serial port raises `line` and writes to `output`.
    pub fn new(line: EventFd, output: Output) -> Self {
        Self { serial: Mutex::new(Serial::new(Line(line), output)) }
    }

    /// The guest reads. Ports where nothing is answer 0: an absent RTC that answered 0xFF would look as if it
    /// were updating for ever, and Linux would poll it.
    pub fn read(&self, port: u16, data: &mut [u8]) {
        data.fill(0);
        if let (Some(offset), [value]) = (serial_offset(port), data)
            && let Ok(mut serial) = self.serial.lock()
        {
            *value = serial.read(offset);
        }
    }

    /// The guest writes; returns why the machine stops, if it does.
    pub fn write(&self, port: u16, data: &[u8]) -> Option<Stop> {
        let [value] = *data else { return None };
        match port {
            layout::SLEEP_CONTROL => {
                let s5 = SLEEP_ENABLE | layout::SLEEP_TYPE_S5 << SLEEP_TYPE_SHIFT;
                (value == s5).then_some(Stop::PowerOff)
            }
            // Bit 2 resets; bit 1 only chooses how (Intel ICH datasheet, RST_CNT).
            layout::RESET => (value & 0x4 != 0).then_some(Stop::Reset),
            layout::I8042_COMMAND => (value == layout::I8042_RESET).then_some(Stop::Reset),
            _ => {
                if let Some(offset) = serial_offset(port)
                    && let Ok(mut serial) = self.serial.lock()
                {
                    // The only errors are of the interrupt's eventfd, and of an output that never fails.
                    let _ = serial.write(offset, value);
                }
                None
            }
        }
    }
}

fn serial_offset(port: u16) -> Option<u8> {
    (layout::COM1..layout::COM1 + 8).contains(&port).then(|| (port - layout::COM1) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bus() -> (Ports, super::super::console::Tail) {
        let (output, tail) = Output::new(None).unwrap();
        (Ports::new(EventFd::new(0).unwrap(), output), tail)
    }

    #[test]
    fn serial_output_reaches_the_console() {
        let (bus, tail) = bus();
        for byte in b"hello\n" {
            assert_eq!(bus.write(layout::COM1, &[*byte]), None);
        }
        assert_eq!(tail.lines(1), "hello");
        let mut status = [0];
        bus.read(layout::COM1 + 5, &mut status);
        assert_eq!(status[0] & 0x60, 0x60, "transmitter empty");
    }

    #[test]
    fn absent_ports_answer_zero_and_ignore_writes() {
        let (bus, _) = bus();
        for port in (0..=0xFFFFu16).filter(|p| serial_offset(*p).is_none()) {
            let mut data = [0xAA; 4];
            bus.read(port, &mut data);
            assert_eq!(data, [0; 4]);
            assert_eq!(bus.write(port, &[1, 2, 3, 4]), None);
        }
        // A wide access to the serial port is no register access.
        bus.write(layout::COM1, b"wide");
    }

    #[test]
    fn the_three_ways_to_stop() {
        let (bus, _) = bus();
        assert_eq!(bus.write(layout::SLEEP_CONTROL, &[0x20 | 5 << 2]), Some(Stop::PowerOff));
        assert_eq!(bus.write(layout::SLEEP_CONTROL, &[5 << 2]), None);
        assert_eq!(bus.write(layout::RESET, &[2]), None);
        assert_eq!(bus.write(layout::RESET, &[6]), Some(Stop::Reset));
        assert_eq!(bus.write(layout::I8042_COMMAND, &[0xFE]), Some(Stop::Reset));
    }
}
