//! A driver, played by hand-built queues in guest memory.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use virtio_bindings::virtio_mmio as register;
use virtio_bindings::virtio_ring::VRING_DESC_F_WRITE;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::queues::{CONTROL_RX, CONTROL_TX, RX, TX};
use super::{MmioTransport, PORT_NAME, PortBackend, SessionConsole};

const MEMORY: usize = 1 << 20;
const LIVE: u32 = 1 | 2 | 8 | 4;
const NEEDS_RESET: u32 = 64;

#[derive(Debug)]
struct Backend {
    quiet: vmm_sys_util::eventfd::EventFd,
    log: Vec<&'static str>,
    received: Vec<u8>,
    to_send: VecDeque<u8>,
    full: bool,
}

impl PortBackend for Backend {
    #[allow(unsafe_code)]
    fn work_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&self.quiet)) }
    }
    fn work(&mut self) {}
    fn opened(&mut self) {
        self.log.push("opened");
    }
    fn closed(&mut self) {
        self.log.push("closed");
    }
    fn wants_input(&self) -> bool {
        !self.full
    }
    fn input(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
    }
    fn output(&self) -> &[u8] {
        self.to_send.as_slices().0
    }
    fn consume_output(&mut self, count: usize) {
        self.to_send.drain(..count);
    }
}

struct Driver {
    memory: GuestMemoryMmap,
    device: Arc<MmioTransport>,
    console: SessionConsole<Backend>,
    /// Buffers made available, by queue.
    available: [u16; 4],
    used: [u16; 4],
}

/// Queue `index` has its tables at 64 KiB steps, and its buffers behind them.
fn base(queue: usize) -> u64 {
    0x10000 * (queue as u64 + 1)
}

const SIZE: u16 = 16;

impl Driver {
    fn new() -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap();
        let device = Arc::new(MmioTransport::new(memory.clone()).unwrap());
        let quiet = vmm_sys_util::eventfd::EventFd::new(libc::EFD_NONBLOCK).unwrap();
        let backend =
            Backend { quiet, log: Vec::new(), received: Vec::new(), to_send: VecDeque::new(), full: false };
        let console = SessionConsole::new(Arc::clone(&device), backend).unwrap();
        let mut driver = Self { memory, device, console, available: [0; 4], used: [0; 4] };
        driver.set_up();
        driver
    }

    fn read(&self, offset: u32) -> u32 {
        let mut data = [0xff; 4];
        self.device.read(offset.into(), &mut data);
        u32::from_le_bytes(data)
    }

    fn write(&self, offset: u32, value: u32) {
        self.device.write(offset.into(), &value.to_le_bytes());
    }

    fn set_up(&mut self) {
        self.write(register::VIRTIO_MMIO_STATUS, 0);
        self.memory.write_slice(&vec![0; MEMORY], GuestAddress(0)).unwrap();
        (self.available, self.used) = ([0; 4], [0; 4]);
        for (select, features) in [(0, 1 << 1), (1, 1)] {
            self.write(register::VIRTIO_MMIO_DRIVER_FEATURES_SEL, select);
            self.write(register::VIRTIO_MMIO_DRIVER_FEATURES, features);
        }
        self.write(register::VIRTIO_MMIO_STATUS, 1 | 2 | 8);
        for queue in 0..4 {
            self.write(register::VIRTIO_MMIO_QUEUE_SEL, queue as u32);
            self.write(register::VIRTIO_MMIO_QUEUE_NUM, SIZE.into());
            self.write(register::VIRTIO_MMIO_QUEUE_DESC_LOW, base(queue) as u32);
            self.write(register::VIRTIO_MMIO_QUEUE_AVAIL_LOW, base(queue) as u32 + 0x1000);
            self.write(register::VIRTIO_MMIO_QUEUE_USED_LOW, base(queue) as u32 + 0x2000);
            self.write(register::VIRTIO_MMIO_QUEUE_READY, 1);
            assert_eq!(self.read(register::VIRTIO_MMIO_QUEUE_READY), 1);
        }
        self.write(register::VIRTIO_MMIO_STATUS, LIVE);
        assert_eq!(self.read(register::VIRTIO_MMIO_STATUS), LIVE);
    }

    fn offer(&mut self, queue: usize, descriptor: Descriptor) {
        let slot = self.available[queue] % SIZE;
        let at = |offset: u64| GuestAddress(base(queue) + offset);
        self.memory.write_obj(descriptor, at(16 * u64::from(slot))).unwrap();
        self.memory.write_obj(slot, at(0x1000 + 4 + 2 * u64::from(slot))).unwrap();
        self.available[queue] += 1;
        self.memory.write_obj(self.available[queue], at(0x1002)).unwrap();
        self.write(register::VIRTIO_MMIO_QUEUE_NOTIFY, queue as u32);
    }

    fn buffer(&self, queue: usize) -> u64 {
        base(queue) + 0x4000 + 0x400 * u64::from(self.available[queue] % SIZE)
    }

    fn send(&mut self, queue: usize, bytes: &[u8]) {
        let buffer = self.buffer(queue);
        self.memory.write_slice(bytes, GuestAddress(buffer)).unwrap();
        self.offer(queue, Descriptor::new(buffer, bytes.len() as u32, 0, 0));
    }

    fn offer_empty(&mut self, queue: usize, len: u32) {
        let buffer = self.buffer(queue);
        self.offer(queue, Descriptor::new(buffer, len, VRING_DESC_F_WRITE as u16, 0));
    }

    /// Buffers the device used since the last call, with what it wrote.
    fn take_used(&mut self, queue: usize) -> Vec<Vec<u8>> {
        let at = |offset: u64| GuestAddress(base(queue) + offset);
        let now: u16 = self.memory.read_obj(at(0x2002)).unwrap();
        let mut all = Vec::new();
        while self.used[queue] != now {
            let slot = u64::from(self.used[queue] % SIZE);
            let [id, len]: [u32; 2] = self.memory.read_obj(at(0x2004 + 8 * slot)).unwrap();
            let mut bytes = vec![0; len as usize];
            self.memory.read_slice(&mut bytes, at(0x4000 + 0x400 * u64::from(id))).unwrap();
            all.push(bytes);
            self.used[queue] += 1;
        }
        all
    }

    fn control(&mut self, id: u32, event: u16, value: u16) {
        let message = [&id.to_le_bytes()[..], &event.to_le_bytes(), &value.to_le_bytes()].concat();
        self.send(CONTROL_TX, &message);
    }

    fn open_port(&mut self) {
        for _ in 0..4 {
            self.offer_empty(CONTROL_RX, 64);
        }
        self.control(u32::MAX, 0, 1);
        self.control(0, 3, 1);
        self.control(0, 6, 1);
        self.console.process();
    }

    fn is_broken(&self) -> bool {
        self.read(register::VIRTIO_MMIO_STATUS) & NEEDS_RESET != 0
    }
}

#[test]
fn introduces_itself() {
    let driver = Driver::new();
    assert_eq!(driver.read(register::VIRTIO_MMIO_MAGIC_VALUE), 0x7472_6976);
    assert_eq!(driver.read(register::VIRTIO_MMIO_VERSION), 2);
    assert_eq!(driver.read(register::VIRTIO_MMIO_DEVICE_ID), 3);
    assert_eq!(driver.read(register::VIRTIO_MMIO_CONFIG + 4), 1, "one port");
    driver.write(register::VIRTIO_MMIO_QUEUE_SEL, 4);
    assert_eq!(driver.read(register::VIRTIO_MMIO_QUEUE_NUM_MAX), 0, "four queues");
}

#[test]
fn refuses_features_it_does_not_have() {
    let driver = Driver::new();
    driver.write(register::VIRTIO_MMIO_STATUS, 0);
    driver.write(register::VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
    driver.write(register::VIRTIO_MMIO_DRIVER_FEATURES, 1 << 5);
    driver.write(register::VIRTIO_MMIO_STATUS, LIVE);
    assert_eq!(driver.read(register::VIRTIO_MMIO_STATUS), 1 | 2);
}

#[test]
fn a_port_appears_and_carries_bytes() {
    let mut driver = Driver::new();
    driver.open_port();
    let sent = driver.take_used(CONTROL_RX);
    assert_eq!(sent.len(), 3);
    assert_eq!(&sent[1][8..], PORT_NAME.as_bytes());
    assert_eq!(driver.console.backend().log, ["closed", "opened"], "the first reset counts as a close");
    assert_eq!(driver.read(register::VIRTIO_MMIO_INTERRUPT_STATUS), 1);
    driver.write(register::VIRTIO_MMIO_INTERRUPT_ACK, 1);
    assert_eq!(driver.read(register::VIRTIO_MMIO_INTERRUPT_STATUS), 0);
    assert!(driver.device.irq_event().read().is_ok());

    driver.send(TX, b"hello");
    driver.console.process();
    assert_eq!(driver.console.backend().received, b"hello");

    driver.console.backend_mut().to_send.extend(b"0123456789");
    driver.console.process();
    assert!(driver.take_used(RX).is_empty());
    driver.offer_empty(RX, 4);
    driver.offer_empty(RX, 100);
    driver.console.process();
    assert_eq!(driver.take_used(RX), [&b"0123"[..], b"456789"]);
    assert!(!driver.is_broken());
}

#[test]
fn a_full_backend_leaves_the_queue_alone() {
    let mut driver = Driver::new();
    driver.open_port();
    driver.console.backend_mut().full = true;
    driver.send(TX, b"later");
    driver.console.process();
    assert!(driver.take_used(TX).is_empty());
    driver.console.backend_mut().full = false;
    driver.console.process();
    assert_eq!((driver.take_used(TX).len(), &driver.console.backend().received[..]), (1, &b"later"[..]));
}

#[test]
fn works_again_after_a_reset() {
    let mut driver = Driver::new();
    driver.open_port();
    for _ in 0..3 {
        driver.console.backend_mut().log.clear();
        driver.set_up();
        driver.console.process();
        assert_eq!(driver.console.backend().log, ["closed"]);
        driver.open_port();
        driver.send(TX, b"x");
        driver.console.process();
    }
    assert_eq!(driver.console.backend().received, b"xxx");
}

#[test]
fn what_cannot_be_asks_for_a_reset() {
    let breakers: [fn(&mut Driver); 6] = [
        |driver| driver.offer(TX, Descriptor::new(u64::MAX - 3, 64, 0, 0)),
        |driver| driver.offer(TX, Descriptor::new(0, 0xffff_ffff, 0, 0)),
        |driver| driver.send(CONTROL_TX, b"short"),
        |driver| driver.memory.write_obj(999u16, GuestAddress(base(TX) + 0x1002)).unwrap(),
        |driver| {
            driver.offer_empty(CONTROL_RX, 2);
            driver.control(u32::MAX, 0, 1);
        },
        |driver| {
            driver.write(register::VIRTIO_MMIO_QUEUE_SEL, TX as u32);
            driver.write(register::VIRTIO_MMIO_QUEUE_READY, 0);
            driver.write(register::VIRTIO_MMIO_QUEUE_DESC_HIGH, 0x7fff_0000);
            driver.write(register::VIRTIO_MMIO_QUEUE_READY, 1);
        },
    ];
    for (number, breaker) in breakers.into_iter().enumerate() {
        let mut driver = Driver::new();
        breaker(&mut driver);
        driver.console.process();
        assert!(driver.is_broken(), "breaker {number}");
        driver.console.process();
        driver.set_up();
        driver.open_port();
        driver.send(TX, b"fine");
        driver.console.process();
        assert_eq!(driver.console.backend().received, b"fine", "after breaker {number}");
    }
}

/// A driver that does nothing but break the device and reset it, and toggle its port.
#[test]
fn a_driver_that_resets_in_a_loop_is_not_reported_each_time() {
    let mut driver = Driver::new();
    for _ in 0..2000 {
        driver.set_up();
        driver.control(0, 6, 1);
        driver.control(0, 6, 0);
        driver.send(CONTROL_TX, b"short");
        driver.console.process();
        assert!(driver.is_broken());
        driver.console.backend_mut().log.clear();
    }
    assert!(driver.console.complaints().suppressed_ever() > 1900);
    driver.set_up();
    driver.open_port();
    driver.send(TX, b"fine");
    driver.console.process();
    assert_eq!(driver.console.backend().received, b"fine");
}

#[test]
fn the_event_loop_is_notified() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let ready = |driver: &Driver| {
        let fd = driver.console.as_fd();
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
            .unwrap()
    };
    let mut driver = Driver::new();
    driver.open_port();
    assert_eq!(ready(&driver), 0);
    driver.send(TX, b"x");
    assert_eq!(ready(&driver), 1);
    driver.console.process();
    assert_eq!(ready(&driver), 0);
}

/// A small generator of the xorshift family: the same noise in every run.
fn noise(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn nonsense_never_panics() {
    let mut state = 0x1234_5678_9abc_def1;
    for _ in 0..200 {
        let mut driver = Driver::new();
        driver.open_port();
        for _ in 0..100 {
            let (what, value) = (noise(&mut state), noise(&mut state));
            let offset = what >> 8 & 0x1ff;
            match what & 7 {
                0 => driver.device.read(offset, &mut vec![0; (value & 15) as usize]),
                1 => driver.device.write(offset, &vec![value as u8; (value >> 8 & 15) as usize]),
                2..=4 => driver.write((offset & !3) as u32, (value >> (value & 63)) as u32),
                5 => {
                    // Over descriptors and rings.
                    let at = base((what >> 40 & 3) as usize) + (what >> 20 & 0x2fff);
                    driver.memory.write_obj(value >> (what >> 56 & 63), GuestAddress(at)).unwrap();
                }
                6 => driver.console.backend_mut().to_send.push_back(value as u8),
                _ => driver.console.process(),
            }
        }
        driver.console.process();
    }
}
