//! perfvisor: a virtual machine monitor whose guests have performance counters that can be trusted.
//!
//! Data flows one way: an exit of a vCPU ([`vcpu`]) goes through its doors to a device or to its virtual PMU
//! (crate `vpmu`), and back. See ARCHITECTURE.md for the whole.

pub mod cli;
pub mod command;
pub mod control;
pub mod devices;
mod doors;
pub mod dump;
pub mod host;
pub mod machine;
pub mod place;
pub mod registry;
pub mod vcpu;
pub mod virtio {
    //! stub until the device is there
    use std::io;
    use vm_memory::GuestMemoryMmap;
    use vmm_sys_util::eventfd::EventFd;
    #[allow(missing_docs)]
    pub const QUEUE_NOTIFY: u64 = 0x50;
    #[allow(missing_docs)]
    pub struct MmioTransport(EventFd, Vec<EventFd>);
    #[allow(missing_docs)]
    impl MmioTransport {
        pub fn new(_: GuestMemoryMmap) -> io::Result<Self> {
            Ok(Self(EventFd::new(0)?, vec![EventFd::new(0)?]))
        }
        pub fn irq_event(&self) -> &EventFd {
            &self.0
        }
        pub fn queue_events(&self) -> &[EventFd] {
            &self.1
        }
        pub fn read(&self, _: u64, data: &mut [u8]) {
            data.fill(0);
        }
        pub fn write(&self, _: u64, _: &[u8]) {}
    }
}
