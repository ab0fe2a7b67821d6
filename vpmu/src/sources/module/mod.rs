//! The source `module`: host counters that the kernel module perfctr_host programs, without perf.
//!
//! Each slot is a counter of the processor. The module switches them with the vCPU's thread, and shows in a page what is
//! needed to read them by RDPMC, with no system call ([`perfctr_abi::host_module`]). While any machine counts with it, perf
//! has no counters on this host, nor has the NMI watchdog. Root may take them back at any time.
//!
//! System calls, for a seccomp filter: mmap and three ioctls at the first load, an ioctl at each load and when an
//! threshold is set ([`IOCTLS`]), munmap and close at the end. The file is opened before, with the [`ModulePmu`].

mod device;
pub mod global_mode;
mod ioctl;
mod state_page;

use std::io;
use std::thread::{self, ThreadId};

pub use perfctr_abi::host_module::{DEVICE, EMULATED, Info};

use device::{Counters, Device};
pub use device::{Hold, IOCTLS, OpenError, hold};
pub use global_mode as global;

use crate::host::family::HostFamily;
use crate::host::pmu::HardwareCounts;
use crate::host::pmu::{HostEvent, HostPmu, LoadError};

const USR: u64 = 1 << 16;
const OS: u64 = 1 << 17;
/// Event 3 of AMD's processors from family 17h on, "Retired SSE/AVX FLOPs", adds more than 15 a cycle, for which two
/// counters are to be merged (PPR Family 17h, 2.1.17.3 "Large Increment per Cycle Events"). One alone counts too few.
const ZEN_FLOPS: u64 = 0x03;
const EVENT: u64 = 0xF_0000_00FF;

/// Host counters of one vCPU thread.
///
/// May be created anywhere; the thread that loads the first event is the vCPU's.
#[derive(Debug)]
pub struct ModulePmu<D = Device> {
    info: Info,
    family: HostFamily,
    signal: libc::c_int,
    tsc_offset: u64,
    /// Opened with this, for a thread that counts may open nothing any more.
    device: io::Result<D>,
    /// By the first load.
    attached: bool,
    loaded: u32,
    thread: Option<ThreadId>,
}

impl ModulePmu {
    /// No event is loaded. A slot that passes its threshold sends `signal` to the vCPU's thread, whose handler must make KVM_RUN return. `info` is
    /// of the [`Hold`] that keeps the counters for this machine.
    pub fn new(info: Info, signal: libc::c_int) -> Self {
        Self::with(info, HostFamily::detect(), signal)
    }
}

impl<D: Counters> ModulePmu<D> {
    fn with(info: Info, family: HostFamily, signal: libc::c_int) -> Self {
        let device = D::open();
        Self { info, family, signal, tsc_offset: 0, device, attached: false, loaded: 0, thread: None }
    }

    /// Let the guest's TSC be the host's plus `offset`, as [`PerfPmu`](crate::sources::perf::PerfPmu::set_tsc_offset) does.
    pub fn set_tsc_offset(&mut self, offset: u64) {
        self.tsc_offset = offset;
    }

    /// The register's value, less what the module adds.
    fn evntsel(&self, event: HostEvent) -> Option<u64> {
        let zen = matches!(self.family, HostFamily::Zen | HostFamily::Zen2);
        if zen && event.config & EVENT == ZEN_FLOPS {
            return None;
        }
        let modes = if event.usr { USR } else { 0 } | if event.os { OS } else { 0 };
        let evntsel = event.config | modes;
        (evntsel & !self.info.evntsel == 0).then_some(evntsel)
    }

    fn holds(&self, slot: usize) -> bool {
        slot < self.capacity() && self.loaded & 1 << slot != 0
    }
}

impl<D: Counters> HostPmu for ModulePmu<D> {
    fn name(&self) -> &'static str {
        "module"
    }

    fn capacity(&self) -> usize {
        self.info.counters as usize
    }

    fn load(&mut self, slot: usize, event: HostEvent) -> Result<(), LoadError> {
        if slot >= self.capacity() {
            return Err(LoadError::Busy);
        }
        let thread = *self.thread.get_or_insert_with(|| thread::current().id());
        debug_assert_eq!(thread, thread::current().id(), "loaded on another thread than the vCPU's");
        let evntsel = self.evntsel(event).ok_or(LoadError::Unsupported)?;
        self.loaded &= !(1 << slot);
        let device = match &mut self.device {
            Ok(device) => device,
            Err(error) => return Err(LoadError::Os(again(error))),
        };
        if !self.attached || device.is_lost() {
            self.loaded = 0;
            device.attach(self.signal).map_err(|e| match e.raw_os_error() {
                // perf has them, or root has switched this off, since the machine was started.
                Some(libc::EBUSY | libc::EPERM) => LoadError::Busy,
                _ => LoadError::Os(e),
            })?;
            self.attached = true;
        }
        device.load(slot as u32, evntsel).map_err(|e| match e.raw_os_error() {
            Some(libc::EPERM | libc::EINVAL) => LoadError::Unsupported,
            Some(libc::EBUSY) => LoadError::Busy,
            _ => LoadError::Os(e),
        })?;
        self.loaded |= 1 << slot;
        Ok(())
    }

    /// The counter runs on, which costs nothing, until the slot is needed: that is at once, as a rule.
    fn unload(&mut self, slot: usize) {
        if self.holds(slot) {
            self.loaded &= !(1 << slot);
        }
    }

    fn arm(&mut self, slot: usize, after: u64) -> Result<(), LoadError> {
        match &mut self.device {
            Ok(device) if self.loaded & 1 << slot != 0 => Ok(device.arm(slot as u32, after)?),
            _ => Err(LoadError::Unsupported),
        }
    }

    fn now(&self, slot: usize) -> Option<u64> {
        debug_assert!(self.thread.is_none_or(|thread| thread == thread::current().id()));
        if !self.holds(slot) {
            return None;
        }
        self.device.as_ref().ok()?.now(slot)
    }

    fn counts_emulated(&self) -> bool {
        match &self.device {
            Ok(device) if self.attached => device.counts_emulated(),
            _ => self.info.flags & EMULATED != 0,
        }
    }

    fn tsc(&self) -> u64 {
        crate::sources::counter_instructions::rdtsc().wrapping_add(self.tsc_offset)
    }

    fn hardware(&self) -> Option<HardwareCounts> {
        let attached = self.device.as_ref().ok().filter(|_| self.attached);
        Some(attached.map(Counters::hardware).unwrap_or_default())
    }
}

/// An error of the kernel's once more: io::Error is not Clone.
fn again(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

#[cfg(test)]
#[path = "fake_device_tests.rs"]
mod tests;
