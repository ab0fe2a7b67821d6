//! What every main loop waits for: clients of the control socket, the machine's stop, signals.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use event_manager::{EventManager, EventOps, Events, MutEventSubscriber, SubscriberOps};
use vmm_sys_util::epoll::EventSet;

use crate::control_socket::{Clients, Subject};
use crate::guest_session::Signals;
use crate::machine::Machine;
use crate::registry::Claim;
use crate::say::say;

/// Every subscriber of a main loop.
pub(super) type Subscriber = Arc<Mutex<dyn MutEventSubscriber>>;

/// A main loop that wakes for the control socket, the machine's stop and signals.
pub(super) fn event_manager(
    machine: &Machine,
    claim: &Claim,
    subject: &Arc<Subject>,
    signals: &Arc<Mutex<Signals>>,
) -> Result<EventManager<Subscriber>> {
    let mut manager = EventManager::<Subscriber>::new().map_err(|e| anyhow::anyhow!("epoll: {e}"))?;
    let listener = claim.listener().try_clone().context("control socket")?;
    listener.set_nonblocking(true).context("control socket")?;
    let clients = ControlSocket { listener, clients: Clients::default(), subject: Arc::clone(subject) };
    manager.add_subscriber(Arc::new(Mutex::new(clients)));
    manager.add_subscriber(Arc::new(Mutex::new(Wake(machine.stop_event().as_raw_fd()))));
    manager.add_subscriber(Arc::clone(signals) as Subscriber);
    Ok(manager)
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Only the main thread takes these locks, so a poisoned one could only be its own panic.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// So many clients are accepted before other work of the main loop gets its turn.
const BUDGET: usize = 16;

/// Accepts clients of the control socket.
struct ControlSocket {
    listener: std::os::unix::net::UnixListener,
    clients: Clients,
    subject: Arc<Subject>,
}

impl MutEventSubscriber for ControlSocket {
    fn process(&mut self, _: Events, _: &mut EventOps<'_>) {
        for _ in 0..BUDGET {
            match self.listener.accept() {
                Ok((client, _)) => self.clients.add(client, &self.subject),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    // No descriptors left, say. The client still waits, so the event comes again at once.
                    std::thread::sleep(Duration::from_millis(50));
                    break;
                }
            }
        }
    }

    fn init(&mut self, ops: &mut EventOps<'_>) {
        if let Err(e) = ops.add(Events::new(&self.listener, EventSet::IN)) {
            say(format_args!("control socket: {e}; dump and list will not work"));
        }
    }
}

/// Wakes the main loop; what happened it finds out itself.
struct Wake(std::os::fd::RawFd);

impl MutEventSubscriber for Wake {
    fn process(&mut self, _: Events, _: &mut EventOps<'_>) {}

    fn init(&mut self, ops: &mut EventOps<'_>) {
        if let Err(e) = ops.add(Events::new_raw(self.0, EventSet::IN)) {
            say(format_args!("{e}; the guest's end will not be noticed"));
        }
    }
}

impl MutEventSubscriber for Signals {
    fn process(&mut self, _: Events, _: &mut EventOps<'_>) {}

    fn init(&mut self, ops: &mut EventOps<'_>) {
        for pipe in self.pipes() {
            if let Err(e) = ops.add(Events::new(pipe, EventSet::IN)) {
                say(format_args!("{e}; signals will not reach the command"));
            }
        }
    }
}
