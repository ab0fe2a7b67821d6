//! The data path of the session console, on the main event loop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use event_manager::{EventOps, Events, MutEventSubscriber};
use rustix::event::epoll;
use virtio_queue::QueueT;
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::eventfd::EventFd;

use super::port_control::Control;
use super::queues::{CONTROL_RX, CONTROL_TX, QUEUE_SIZE, RX, TX, Taken, fill, take, usable};
use super::transport::{MmioTransport, State};
use crate::ratelimit::RateLimit;
use crate::say::say;

/// What is behind the port.
pub trait PortBackend {
    /// Readable when the backend has something to do, see [`Self::work`].
    fn work_fd(&self) -> BorrowedFd<'_>;

    /// Does what can be done outside of the VM: reads its input, writes its output.
    fn work(&mut self);

    /// The guest opened the port.
    fn opened(&mut self);

    /// The guest closed the port, or its driver reset the device.
    fn closed(&mut self);

    /// False while the backend has enough: what the guest sends waits in its queue.
    fn wants_input(&self) -> bool;

    /// Takes bytes the guest sent.
    fn input(&mut self, bytes: &[u8]);

    /// Bytes for the guest.
    fn output(&self) -> &[u8];

    /// The guest took `count` of [`Self::output`].
    fn consume_output(&mut self, count: usize);
}

/// So many buffers are handled before other work of the event loop gets its turn.
const BUDGET: usize = QUEUE_SIZE as usize;

/// The device's half on the event loop.
///
/// Register it with an event manager, or poll [`AsFd::as_fd`] and call [`Self::process`] when it is readable.
#[derive(Debug)]
pub struct SessionConsole<B> {
    transport: Arc<MmioTransport>,
    backend: B,
    control: Control,
    /// The driver's life that `control` belongs to.
    life: u64,
    /// About the driver.
    complaints: RateLimit,
    /// Joins all events, so that an event loop needs to know only one.
    events: OwnedFd,
}

impl<B: PortBackend> SessionConsole<B> {
    /// Joins the device to what is behind its port.
    pub fn new(transport: Arc<MmioTransport>, backend: B) -> io::Result<Self> {
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch =
            |fd: BorrowedFd<'_>| epoll::add(&events, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        for event in transport.queue_events().iter().chain([transport.status_event()]) {
            watch(borrow(event))?;
        }
        watch(backend.work_fd())?;
        let life = transport.state().life;
        Ok(Self {
            transport,
            backend,
            control: Control::default(),
            life,
            complaints: RateLimit::default(),
            events,
        })
    }

    /// What is behind the port.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    #[cfg(test)]
    pub(super) fn complaints(&self) -> &RateLimit {
        &self.complaints
    }

    /// What is behind the port. Call [`Self::process`] after a change.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Does everything that can be done now.
    pub fn process(&mut self) {
        for event in self.transport.queue_events().iter().chain([self.transport.status_event()]) {
            // Would block: it was another of the events.
            let _ = event.read();
        }
        self.backend.work();
        let transport = Arc::clone(&self.transport);
        let mut state = transport.state();
        if state.life != self.life {
            self.life = state.life;
            self.control = Control::default();
            self.backend.closed();
        }
        if state.is_live()
            && let Err(reason) = self.process_queues(&mut state)
        {
            self.complaints.say(format_args!(
                "session console: the guest's driver offered {reason}; the device waits for its reset"
            ));
            transport.needs_reset(&mut state);
        }
        drop(state);
        let (full, silent) = (!self.backend.wants_input(), self.backend.output().is_empty());
        self.backend.work();
        // What the queues had to leave may be possible now.
        if full && self.backend.wants_input() {
            self.come_back_to(TX);
        }
        if silent && !self.backend.output().is_empty() {
            self.come_back_to(RX);
        }
    }

    fn come_back_to(&self, queue: usize) {
        // Fails only when the counter is full, and then the event is pending anyway.
        let _ = self.transport.queue_events()[queue].write(1);
    }

    fn process_queues(&mut self, state: &mut State) -> Result<(), String> {
        let mut used = [0; 4];
        let mut result = Ok(());
        for (queue, used) in [CONTROL_TX, CONTROL_RX, TX, RX].into_iter().zip(&mut used) {
            if result.is_ok() {
                result = self.process_queue(state, queue, used);
            }
        }
        // Also after an error: the driver may wait for buffers that were used before it.
        for (queue, used) in [CONTROL_TX, CONTROL_RX, TX, RX].into_iter().zip(used) {
            let queue = &mut state.queues[queue];
            if used > 0 && queue.needs_notification(self.transport.memory()).unwrap_or(true) {
                self.transport.interrupt_used();
            }
        }
        result
    }

    fn process_queue(&mut self, state: &mut State, index: usize, used: &mut usize) -> Result<(), String> {
        let memory = self.transport.memory();
        let queue = &mut state.queues[index];
        if !usable(queue, memory)? {
            return Ok(());
        }
        while *used < BUDGET {
            let taken = match index {
                CONTROL_TX => {
                    let open = self.control.is_open();
                    let taken = take(queue, memory, |message| self.control.handle(message))?;
                    match (open, self.control.is_open()) {
                        (false, true) => self.backend.opened(),
                        (true, false) => self.backend.closed(),
                        _ => {}
                    }
                    taken
                }
                CONTROL_RX => {
                    let Some(message) = self.control.next_message() else { return Ok(()) };
                    let (taken, count) = fill(queue, memory, message)?;
                    if taken == Taken::One {
                        if count < message.len() {
                            return Err(format!("a buffer of {count} bytes for a control message"));
                        }
                        self.control.message_sent();
                    }
                    taken
                }
                TX => {
                    if !self.backend.wants_input() {
                        return Ok(());
                    }
                    take(queue, memory, |bytes| {
                        self.backend.input(bytes);
                        Ok(())
                    })?
                }
                _ => {
                    // A port that is not open throws away what it gets.
                    if !self.control.is_open() || self.backend.output().is_empty() {
                        return Ok(());
                    }
                    let (taken, count) = fill(queue, memory, self.backend.output())?;
                    self.backend.consume_output(count);
                    taken
                }
            };
            if taken == Taken::None {
                return Ok(());
            }
            *used += 1;
        }
        // There may be more: come back after the others.
        self.come_back_to(index);
        Ok(())
    }
}

#[allow(unsafe_code)] // vmm-sys-util's EventFd has no AsFd.
fn borrow(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open for as long as `event` lives, and the result borrows `event`.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

impl<B> AsFd for SessionConsole<B> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl<B: PortBackend> MutEventSubscriber for SessionConsole<B> {
    fn process(&mut self, _: Events, _: &mut EventOps<'_>) {
        Self::process(self);
    }

    fn init(&mut self, ops: &mut EventOps<'_>) {
        if let Err(error) = ops.add(Events::new(&self.events, EventSet::IN)) {
            say(format_args!(
                "session console: cannot watch its events: {error}; commands in the guest will not run"
            ));
        }
    }
}
