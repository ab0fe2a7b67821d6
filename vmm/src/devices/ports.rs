//! The port bus: a serial port and the ways by which a guest stops its machine.

use std::sync::Mutex;

use vm_superio::{Serial, Trigger, serial::NoEvents};
use vmm_sys_util::eventfd::EventFd;

use super::console::{Output, Tail};
use super::stop::Stop;
use super::test_ports::TestPorts;
use crate::address_map;

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
    tail: Tail,
    test: Option<TestPorts>,
}

impl Ports {
    /// A bus whose serial port raises `line` and writes to `output`; with `test`, what test kernels expect as well.
    pub fn new(line: EventFd, output: Output, test: Option<TestPorts>) -> Self {
        let tail = output.tail().clone();
        Self { serial: Mutex::new(Serial::new(Line(line), output)), tail, test }
    }

    /// Whether the guest has to wait for the reader of its output.
    pub fn output_is_full(&self) -> bool {
        self.tail.is_full()
    }

    /// Wait a little for that; whether it still is so.
    pub fn wait_for_output(&self) -> bool {
        self.tail.wait()
    }

    /// The guest reads. Ports where nothing is answer 0: an absent RTC that answered 0xFF would look as if it
    /// were updating for ever, and Linux would poll it. Only PCI's data ports answer all ones, which is no device, as
    /// 0 would be one in every place.
    pub fn read(&self, port: u16, data: &mut [u8]) {
        if (address_map::PCI_DATA..address_map::PCI_DATA + 4).contains(&port) {
            return data.fill(0xFF);
        }
        data.fill(0);
        if let Some(test) = &self.test {
            test.read(port, data);
        }
        if let (Some(offset), [value]) = (serial_offset(port), data)
            && let Ok(mut serial) = self.serial.lock()
        {
            *value = serial.read(offset);
        }
    }

    /// The guest writes; returns why the machine stops, if it does.
    pub fn write(&self, port: u16, data: &[u8]) -> Option<Stop> {
        if let Some(test) = &self.test
            && let Some(stop) = test.write(port, data)
        {
            return Some(stop);
        }
        let [value] = *data else { return None };
        match port {
            address_map::SLEEP_CONTROL => {
                let s5 = SLEEP_ENABLE | address_map::SLEEP_TYPE_S5 << SLEEP_TYPE_SHIFT;
                (value == s5).then_some(Stop::PowerOff)
            }
            // Bit 2 resets; bit 1 only chooses how (Intel ICH datasheet, RST_CNT).
            address_map::RESET => (value & 0x4 != 0).then_some(Stop::Reset),
            address_map::I8042_COMMAND => (value == address_map::I8042_RESET).then_some(Stop::Reset),
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
    (address_map::COM1..address_map::COM1 + 8).contains(&port).then(|| (port - address_map::COM1) as u8)
}

#[cfg(test)]
mod tests {
    use super::super::console::WhenFull;
    use super::*;
    use crate::confinement::Confinement;

    const PCI_DATA: std::ops::Range<u16> = address_map::PCI_DATA..address_map::PCI_DATA + 4;

    fn bus() -> (Ports, super::super::console::Tail) {
        let (output, tail) = Output::new(None, WhenFull::Lose, &Confinement::none()).unwrap();
        (Ports::new(EventFd::new(0).unwrap(), output, None), tail)
    }

    #[test]
    fn serial_output_reaches_the_console() {
        let (bus, tail) = bus();
        for byte in b"hello\n" {
            assert_eq!(bus.write(address_map::COM1, &[*byte]), None);
        }
        assert_eq!(tail.lines(1), "hello");
        let mut status = [0];
        bus.read(address_map::COM1 + 5, &mut status);
        assert_eq!(status[0] & 0x60, 0x60, "transmitter empty");
    }

    #[test]
    fn absent_ports_answer_zero_and_ignore_writes() {
        let (bus, _) = bus();
        for port in (0..=0xFFFFu16).filter(|p| serial_offset(*p).is_none() && !PCI_DATA.contains(p)) {
            let mut data = [0xAA; 4];
            bus.read(port, &mut data);
            assert_eq!(data, [0; 4]);
            assert_eq!(bus.write(port, &[1, 2, 3, 4]), None);
        }
        // A wide access to the serial port is no register access.
        bus.write(address_map::COM1, b"wide");
    }

    #[test]
    fn no_pci_device_is_anywhere() {
        let (bus, _) = bus();
        for function in [0x8000_0000u32, 0x80FF_FF00] {
            bus.write(address_map::PCI_DATA - 4, &function.to_le_bytes());
            for (port, width) in PCI_DATA.flat_map(|port| [(port, 1), (port, 2), (port, 4)]) {
                let mut data = [0x55; 4];
                bus.read(port, &mut data[..width]);
                assert!(data[..width].iter().all(|byte| *byte == 0xFF), "{port:#x}, {width}");
            }
        }
    }

    #[test]
    fn a_test_kernel_has_its_ports_beside_the_others() {
        let (output, tail) = Output::new(None, WhenFull::Lose, &Confinement::none()).unwrap();
        let bus = Ports::new(EventFd::new(0).unwrap(), output, Some(TestPorts::new(1, 64 << 20)));
        assert_eq!(bus.write(address_map::COM1, b"x"), None);
        assert_eq!(tail.lines(1), "x");
        assert_eq!(bus.write(address_map::RESET, &[6]), Some(Stop::Reset));
        assert_eq!(bus.write(address_map::DEBUG_EXIT, &[1]), Some(Stop::Exit(3)));
    }

    #[test]
    fn the_three_ways_to_stop() {
        let (bus, _) = bus();
        assert_eq!(bus.write(address_map::SLEEP_CONTROL, &[0x20 | 5 << 2]), Some(Stop::PowerOff));
        assert_eq!(bus.write(address_map::SLEEP_CONTROL, &[5 << 2]), None);
        assert_eq!(bus.write(address_map::RESET, &[2]), None);
        assert_eq!(bus.write(address_map::RESET, &[6]), Some(Stop::Reset));
        assert_eq!(bus.write(address_map::I8042_COMMAND, &[0xFE]), Some(Stop::Reset));
    }
}
