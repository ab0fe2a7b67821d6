//! What the exits of one vCPU reach: ports, the session console, and its virtual PMU.

use std::sync::Arc;

use vm_memory::GuestMemoryMmap;
use vpmu::{HostPmu, MsrOutcome, VirtualPmu};

use crate::address_map;
use crate::devices::ports::Ports;
use crate::devices::stop::Stop;
use crate::dump::{Exits, VcpuDump};
use crate::vcpu::exit::{Counting, ExitHandler, GeneralProtection};
use crate::virtio::MmioTransport;

/// See the module.
pub(crate) struct VcpuExitHandler<H: HostPmu> {
    index: u8,
    ports: Arc<Ports>,
    session: Arc<MmioTransport>,
    pmu: Option<VirtualPmu<H>>,
    memory: GuestMemoryMmap,
    exits: Exits,
    /// What this vCPU said last filled the serial port's output.
    output_full: bool,
    /// The exit that is being handled is an instruction that nobody has counted yet.
    uncounted: bool,
}

impl<H: HostPmu> VcpuExitHandler<H> {
    pub(crate) fn new(
        index: u8,
        ports: Arc<Ports>,
        session: Arc<MmioTransport>,
        pmu: Option<VirtualPmu<H>>,
        memory: GuestMemoryMmap,
    ) -> Self {
        Self {
            index,
            ports,
            session,
            pmu,
            memory,
            exits: Exits::default(),
            output_full: false,
            uncounted: false,
        }
    }
}

/// Offset into the session console's registers, if `address` is there.
fn session_offset(address: u64) -> Option<u64> {
    address.checked_sub(address_map::VIRTIO_MMIO).filter(|offset| *offset < address_map::VIRTIO_MMIO_SIZE)
}

impl<H: HostPmu> VcpuExitHandler<H> {
    /// Port or memory-mapped input or output, which the processor has not retired.
    fn input_or_output(&mut self) {
        self.uncounted = self.pmu.as_ref().is_some_and(VirtualPmu::counts_emulated_here);
    }
}

impl<H: HostPmu> ExitHandler for VcpuExitHandler<H> {
    fn port_read(&mut self, port: u16, data: &mut [u8]) {
        self.exits.port += 1;
        self.input_or_output();
        self.ports.read(port, data);
    }

    fn port_write(&mut self, port: u16, data: &[u8]) -> Option<Stop> {
        self.exits.port += 1;
        self.input_or_output();
        let stop = self.ports.write(port, data);
        self.output_full = self.ports.output_is_full();
        stop
    }

    fn mmio_read(&mut self, address: u64, data: &mut [u8]) {
        self.exits.mmio += 1;
        self.input_or_output();
        match session_offset(address) {
            Some(offset) => self.session.read(offset, data),
            None => data.fill(0),
        }
    }

    fn mmio_write(&mut self, address: u64, data: &[u8]) {
        self.exits.mmio += 1;
        self.input_or_output();
        if let Some(offset) = session_offset(address) {
            self.session.write(offset, data);
        }
    }

    fn rdmsr(&mut self, index: u32) -> Result<u64, GeneralProtection> {
        self.exits.msr += 1;
        match self.pmu.as_mut().map(|pmu| pmu.rdmsr(index)) {
            Some(MsrOutcome::Value(value)) => Ok(value),
            _ => Err(GeneralProtection),
        }
    }

    fn wrmsr(&mut self, index: u32, value: u64) -> Result<(), GeneralProtection> {
        self.exits.msr += 1;
        match self.pmu.as_mut().map(|pmu| pmu.wrmsr(index, value, &self.memory)) {
            Some(MsrOutcome::Handled) => Ok(()),
            _ => Err(GeneralProtection),
        }
    }

    fn kicked(&mut self) {
        if let Some(pmu) = &mut self.pmu {
            pmu.kicked();
        }
    }

    fn wants_mode(&mut self) -> bool {
        std::mem::take(&mut self.uncounted)
    }

    fn emulated(&mut self, kernel: bool) {
        if let Some(pmu) = &mut self.pmu {
            pmu.emulated(kernel);
        }
    }

    fn take_pmi(&mut self) -> bool {
        self.pmu.as_mut().is_some_and(VirtualPmu::take_pmi)
    }

    fn take_vector(&mut self) -> Option<u8> {
        self.pmu.as_mut()?.take_vector(&self.memory)
    }

    fn must_wait(&mut self) -> bool {
        self.output_full = self.output_full && self.ports.wait_for_output();
        self.output_full
    }
}

impl<H: HostPmu> Counting for VcpuExitHandler<H> {
    fn dump(&mut self) -> VcpuDump {
        let pmu = self.pmu.as_mut().map(VirtualPmu::snapshot);
        VcpuDump { index: self.index, exits: self.exits, pmu, kvm: None }
    }

    fn finish(&mut self) -> VcpuDump {
        if let Some(pmu) = &mut self.pmu {
            pmu.stop(&self.memory);
        }
        self.dump()
    }
}
