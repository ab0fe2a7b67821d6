//! The registers of virtio-mmio, version 2 (virtio 1.2, 4.2.2).

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_DRIVER_OK, VIRTIO_CONFIG_S_FAILED, VIRTIO_CONFIG_S_FEATURES_OK,
    VIRTIO_CONFIG_S_NEEDS_RESET, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;
use virtio_bindings::virtio_mmio as register;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::port_control::{CONFIG_SPACE, F_MULTIPORT};
use super::queues::{QUEUE_COUNT, QUEUE_SIZE};

/// Offset of the register whose writes notify a queue; the value is the queue's index.
pub const QUEUE_NOTIFY: u64 = register::VIRTIO_MMIO_QUEUE_NOTIFY as u64;

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VERSION: u32 = 2;
const VENDOR: u32 = u32::from_le_bytes(*b"PFVR");

const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << F_MULTIPORT;

/// The device as vCPU threads see it.
#[derive(Debug)]
pub struct MmioTransport {
    memory: GuestMemoryMmap,
    state: Mutex<State>,
    interrupt_status: AtomicU32,
    queue_events: [EventFd; QUEUE_COUNT],
    irq: EventFd,
    /// Written when the driver changed the device's status, which the data path has to act on.
    status_event: EventFd,
}

/// What registers set up.
#[derive(Debug)]
pub(super) struct State {
    status: u32,
    device_features_sel: u32,
    driver_features_sel: u32,
    driver_features: u64,
    queue_sel: usize,
    pub(super) queues: [Queue; QUEUE_COUNT],
    /// Counts resets: the data path must forget what belongs to an earlier life of the driver.
    pub(super) life: u64,
}

impl State {
    fn new() -> Result<Self, virtio_queue::Error> {
        let queue = || Queue::new(QUEUE_SIZE);
        Ok(Self {
            status: 0,
            device_features_sel: 0,
            driver_features_sel: 0,
            driver_features: 0,
            queue_sel: 0,
            queues: [queue()?, queue()?, queue()?, queue()?],
            life: 0,
        })
    }

    fn reset(&mut self) {
        self.status = 0;
        self.device_features_sel = 0;
        self.driver_features_sel = 0;
        self.driver_features = 0;
        self.queue_sel = 0;
        self.queues.iter_mut().for_each(QueueT::reset);
        self.life += 1;
    }

    /// The driver is set up, and nothing has asked it to start over.
    pub(super) fn is_live(&self) -> bool {
        let broken = VIRTIO_CONFIG_S_NEEDS_RESET | VIRTIO_CONFIG_S_FAILED;
        self.status & (VIRTIO_CONFIG_S_DRIVER_OK | broken) == VIRTIO_CONFIG_S_DRIVER_OK
    }

    fn read(&self, offset: u32) -> u32 {
        match offset {
            register::VIRTIO_MMIO_MAGIC_VALUE => MAGIC,
            register::VIRTIO_MMIO_VERSION => VERSION,
            register::VIRTIO_MMIO_DEVICE_ID => VIRTIO_ID_CONSOLE,
            register::VIRTIO_MMIO_VENDOR_ID => VENDOR,
            register::VIRTIO_MMIO_DEVICE_FEATURES => match self.device_features_sel {
                0 => FEATURES as u32,
                1 => (FEATURES >> 32) as u32,
                _ => 0,
            },
            register::VIRTIO_MMIO_QUEUE_NUM_MAX => {
                self.queues.get(self.queue_sel).map_or(0, |_| QUEUE_SIZE.into())
            }
            register::VIRTIO_MMIO_QUEUE_READY => {
                self.queues.get(self.queue_sel).is_some_and(|queue| queue.ready()).into()
            }
            register::VIRTIO_MMIO_STATUS => self.status,
            // There are no shared memory regions: their length is all ones.
            register::VIRTIO_MMIO_SHM_LEN_LOW | register::VIRTIO_MMIO_SHM_LEN_HIGH => u32::MAX,
            _ => 0,
        }
    }

    fn write(&mut self, offset: u32, value: u32) {
        match offset {
            register::VIRTIO_MMIO_DEVICE_FEATURES_SEL => self.device_features_sel = value,
            register::VIRTIO_MMIO_DRIVER_FEATURES_SEL => self.driver_features_sel = value,
            register::VIRTIO_MMIO_DRIVER_FEATURES => self.set_driver_features(value),
            register::VIRTIO_MMIO_QUEUE_SEL => self.queue_sel = value as usize,
            register::VIRTIO_MMIO_QUEUE_READY => self.set_queue_ready(value),
            _ => self.configure_queue(offset, value),
        }
    }

    fn set_driver_features(&mut self, value: u32) {
        if self.status & VIRTIO_CONFIG_S_FEATURES_OK != 0 {
            return;
        }
        let (value, low) = (u64::from(value), u64::from(u32::MAX));
        match self.driver_features_sel {
            0 => self.driver_features = self.driver_features & !low | value,
            1 => self.driver_features = self.driver_features & low | value << 32,
            _ => {}
        }
    }

    fn set_status(&mut self, value: u32) {
        let mut added = value;
        let acceptable =
            self.driver_features & !FEATURES == 0 && self.driver_features & (1 << VIRTIO_F_VERSION_1) != 0;
        if added & VIRTIO_CONFIG_S_FEATURES_OK != 0 && !acceptable {
            // The driver reads the status back and sees that the bit did not stick.
            added &= !VIRTIO_CONFIG_S_FEATURES_OK;
        }
        if (self.status | added) & VIRTIO_CONFIG_S_FEATURES_OK == 0 {
            added &= !VIRTIO_CONFIG_S_DRIVER_OK;
        }
        // Only a reset takes bits away, and only the device asks for one.
        self.status |= added & 0xff & !VIRTIO_CONFIG_S_NEEDS_RESET;
    }

    fn set_queue_ready(&mut self, value: u32) {
        let event_idx = self.driver_features & (1 << VIRTIO_RING_F_EVENT_IDX) != 0;
        if let Some(queue) = self.queues.get_mut(self.queue_sel) {
            queue.set_event_idx(event_idx);
            queue.set_ready(value == 1);
        }
    }

    /// Sizes and addresses; the data path checks them when it uses the queue.
    fn configure_queue(&mut self, offset: u32, value: u32) {
        let Some(queue) = self.queues.get_mut(self.queue_sel).filter(|queue| !queue.ready()) else { return };
        match offset {
            register::VIRTIO_MMIO_QUEUE_NUM => queue.set_size(value.try_into().unwrap_or(0)),
            register::VIRTIO_MMIO_QUEUE_DESC_LOW => queue.set_desc_table_address(Some(value), None),
            register::VIRTIO_MMIO_QUEUE_DESC_HIGH => queue.set_desc_table_address(None, Some(value)),
            register::VIRTIO_MMIO_QUEUE_AVAIL_LOW => queue.set_avail_ring_address(Some(value), None),
            register::VIRTIO_MMIO_QUEUE_AVAIL_HIGH => queue.set_avail_ring_address(None, Some(value)),
            register::VIRTIO_MMIO_QUEUE_USED_LOW => queue.set_used_ring_address(Some(value), None),
            register::VIRTIO_MMIO_QUEUE_USED_HIGH => queue.set_used_ring_address(None, Some(value)),
            _ => {}
        }
    }
}

impl MmioTransport {
    /// A device whose queues are in `memory`.
    pub fn new(memory: GuestMemoryMmap) -> io::Result<Self> {
        let event = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC);
        Ok(Self {
            memory,
            state: Mutex::new(State::new().map_err(io::Error::other)?),
            interrupt_status: AtomicU32::new(0),
            queue_events: [event()?, event()?, event()?, event()?],
            irq: event()?,
            status_event: event()?,
        })
    }

    /// One event per queue, to be signalled by a write of its index to the register at [`QUEUE_NOTIFY`].
    pub fn queue_events(&self) -> &[EventFd] {
        &self.queue_events
    }

    /// Raises the device's edge-triggered interrupt.
    pub fn irq_event(&self) -> &EventFd {
        &self.irq
    }

    pub(super) fn status_event(&self) -> &EventFd {
        &self.status_event
    }

    pub(super) fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A guest read from the registers, on a vCPU thread.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let Some(at) = offset.checked_sub(register::VIRTIO_MMIO_CONFIG.into()) {
            for (byte, at) in data.iter_mut().zip(at..) {
                *byte = usize::try_from(at).ok().and_then(|at| CONFIG_SPACE.get(at).copied()).unwrap_or(0);
            }
            return;
        }
        // Registers are read whole; anything else reads as zero.
        if let (Ok(offset), Ok(data)) = (u32::try_from(offset), <&mut [u8; 4]>::try_from(data)) {
            let value = match offset {
                register::VIRTIO_MMIO_INTERRUPT_STATUS => self.interrupt_status.load(Ordering::SeqCst),
                _ => self.state().read(offset),
            };
            *data = value.to_le_bytes();
        }
    }

    /// A guest write to the registers, on a vCPU thread.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let (Ok(offset), Ok(data)) = (u32::try_from(offset), <[u8; 4]>::try_from(data)) else { return };
        let value = u32::from_le_bytes(data);
        match offset {
            // Comes here only where no ioeventfd takes it.
            register::VIRTIO_MMIO_QUEUE_NOTIFY => {
                if let Some(event) = self.queue_events.get(value as usize) {
                    signal(event);
                }
            }
            register::VIRTIO_MMIO_INTERRUPT_ACK => {
                self.interrupt_status.fetch_and(!value, Ordering::SeqCst);
            }
            register::VIRTIO_MMIO_STATUS => {
                let mut state = self.state();
                if value == 0 {
                    state.reset();
                    self.interrupt_status.store(0, Ordering::SeqCst);
                } else {
                    state.set_status(value);
                }
                drop(state);
                signal(&self.status_event);
            }
            _ => self.state().write(offset, value),
        }
    }

    /// Notifies the driver that buffers were used.
    pub(super) fn interrupt_used(&self) {
        self.interrupt(register::VIRTIO_MMIO_INT_VRING);
    }

    /// Gives the device up until the driver resets it.
    pub(super) fn needs_reset(&self, state: &mut State) {
        state.status |= VIRTIO_CONFIG_S_NEEDS_RESET;
        self.interrupt(register::VIRTIO_MMIO_INT_CONFIG);
    }

    fn interrupt(&self, cause: u32) {
        self.interrupt_status.fetch_or(cause, Ordering::SeqCst);
        signal(&self.irq);
    }
}

/// Fails only when the counter is full, and then the event is pending anyway.
fn signal(event: &EventFd) {
    let _ = event.write(1);
}
