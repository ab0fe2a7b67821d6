//! Finds the session ports and gives each a thread.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::agent::{Machine, serve};
use crate::link::Carrier;

/// Ports whose names begin so carry sessions.
pub const NAME_PREFIX: &str = "perfvisor.session";

const CLASS: &str = "/sys/class/virtio-ports";

/// Serves session ports as they appear.
#[derive(Debug)]
pub struct Ports {
    /// Kernel events: a port's name appears in sysfs some time after its device node, and this tells.
    uevents: OwnedFd,
    machine: Arc<Machine>,
    served: Arc<Mutex<BTreeSet<String>>>,
}

impl Ports {
    /// Begins to listen. Call [`Self::scan`] afterwards, for ports that are there already.
    pub fn new(machine: Arc<Machine>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let uevents =
            socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::KOBJECT_UEVENT))?;
        bind(&uevents, &SocketAddrNetlink::new(0, 1))?;
        Ok(Self { uevents, machine, served: Arc::default() })
    }

    /// Takes the events that made the socket readable, and looks for ports.
    pub fn on_event(&self) {
        let mut buffer = [0; 4096];
        // What they say does not matter, nor that some were lost (ENOBUFS): the directory tells the state.
        while !matches!(recv(&self.uevents, &mut buffer, RecvFlags::empty()), Err(Errno::AGAIN)) {}
        self.scan();
    }

    /// Serves every session port that is not served yet.
    pub fn scan(&self) {
        let Ok(entries) = fs::read_dir(CLASS) else { return };
        for device in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let name = fs::read_to_string(format!("{CLASS}/{device}/name")).unwrap_or_default();
            if name.starts_with(NAME_PREFIX) && lock(&self.served).insert(device.clone()) {
                self.serve_device(device);
            }
        }
    }

    fn serve_device(&self, device: String) {
        let (machine, served) = (Arc::clone(&self.machine), Arc::clone(&self.served));
        let started = thread::Builder::new().name(device.clone()).spawn(move || {
            let result = OpenOptions::new()
                .read(true)
                .write(true)
                .open(format!("/dev/{device}"))
                .and_then(|port| serve(port.into(), Carrier::Port, &machine));
            if let Err(error) = result {
                eprintln!("perfvisor-init: session port {device}: {error}");
            }
            // The device may come back, with an event.
            lock(&served).remove(&device);
        });
        if let Err(error) = started {
            eprintln!("perfvisor-init: no thread for a session port: {error}");
        }
    }
}

fn lock(served: &Mutex<BTreeSet<String>>) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsFd for Ports {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.uevents.as_fd()
    }
}
