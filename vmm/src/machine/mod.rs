//! The machine: KVM's VM with its memory, devices and vCPUs, from construction to its end.

mod acpi;
pub mod boot;
mod config;
pub(crate) mod cpuid;
mod error;
pub(crate) mod filter;
mod gdt;
mod identity;
mod memory;
pub(crate) mod rdpmc_trial;
mod registers;
mod tsc;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use kvm_bindings::{CpuId, KVM_PIT_SPEAKER_DUMMY, kvm_pit_config, kvm_userspace_memory_region};
use kvm_ioctls::{IoEventAddress, Kvm, VcpuFd, VmFd};
use vm_memory::{Address, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vpmu::{ControlTable, Host, HostPmu, PmuConfig, VirtualPmu};

use crate::address_map;
use crate::confinement::Confinement;
use crate::devices::console::{Output, Tail, WhenFull};
use crate::devices::ports::Ports;
use crate::devices::stop::Stop;
use crate::devices::test_ports::TestPorts;
use crate::dump::VcpuDump;
use crate::exit_handler::VcpuExitHandler;
use crate::vcpu::lvtpc::Lvtpc;
use crate::vcpu::{Remote, Report, Vcpu};
use crate::virtio::MmioTransport;
use boot::entry::Entry;
pub use config::{Config, GuestPmu, Initrd, Module};
use cpuid::Shown;
pub use error::{Error, Refusal};

/// APIC ids are 8 bits in the tables that this machine writes, and 255 means all.
pub const MAX_VCPUS: u8 = 254;

/// A stop as the main loop hears of it.
struct Reporter {
    stops: Sender<Stop>,
    event: EventFd,
}

impl Report for Reporter {
    fn stopped(&self, _index: u8, stop: Stop) {
        // The main loop outlives the vCPUs; if it does not, nobody needs to hear.
        let _ = self.stops.send(stop);
        let _ = self.event.write(1);
    }
}

/// A machine.
pub struct Machine {
    // First, so that they are gone before what they use.
    vcpus: Vec<Vcpu>,
    vm: Arc<VmFd>,
    session: Arc<MmioTransport>,
    stops: Receiver<Stop>,
    stop_event: EventFd,
    console: Tail,
}

impl Machine {
    /// Make a machine; its vCPUs wait for [`Self::run`]. `host` makes the source of counts for a vCPU from the
    /// vCPU's TSC offset, in the vCPU's thread.
    pub fn new<H, F>(
        kvm: &Kvm,
        config: &Config,
        console: Option<Box<dyn io::Write + Send>>,
        host: F,
    ) -> Result<Self, Error>
    where
        H: HostPmu + 'static,
        F: Fn(u64) -> H + Clone + Send + 'static,
    {
        let vcpus = check_vcpus(kvm, config.vcpus)?;
        let memory = memory::create(config.memory)?;
        let entry = boot::load(&memory, config, vcpus)?;

        let vm = create_vm(kvm)?;
        let engine = config.pmu.of_engine();
        if config.pmu.of_kvm().is_none() {
            filter::install(&vm, engine)?;
        }
        map_memory(&vm, &memory)?;
        let test = match entry {
            Entry::Linux(_) => None,
            Entry::Protected(_) => Some(create_test_devices(&vm, vcpus, config.memory)?),
        };
        let (ports, console) = create_ports(&vm, console, test, &config.confinement)?;
        let session = create_session(&vm, &memory)?;

        let stop_event = EventFd::new(EFD_NONBLOCK).map_err(Error::Resources)?;
        let (stop_sender, stops) = mpsc::channel();
        let mut machine = Self { vcpus: Vec::new(), vm: Arc::new(vm), session, stops, stop_event, console };
        let workshop = Workshop {
            config,
            vcpus,
            entry,
            supported: cpuid::supported(kvm)?,
            processor: Host::detect(),
            memory,
            ports,
            controls: ControlTable::new(),
            stops: stop_sender,
        };
        // All are created before the first runs: an AP must exist when the first vCPU wakes it.
        for index in 0..vcpus {
            let fd = workshop.create_vcpu(&machine.vm, index)?;
            machine.vcpus.push(workshop.spawn_vcpu(&machine, index, fd, host.clone())?);
        }
        Ok(machine)
    }

    /// Start the vCPUs.
    pub fn run(&self) {
        for vcpu in &self.vcpus {
            vcpu.remote().run();
        }
    }

    /// Handles for the control socket.
    pub fn remotes(&self) -> Vec<Remote> {
        self.vcpus.iter().map(|vcpu| vcpu.remote().clone()).collect()
    }

    /// The session console.
    pub fn session(&self) -> &Arc<MmioTransport> {
        &self.session
    }

    /// Readable when [`Self::stop`] has something.
    pub fn stop_event(&self) -> &EventFd {
        &self.stop_event
    }

    /// Why a vCPU says the machine must stop, if one does.
    pub fn stop(&self) -> Option<Stop> {
        // Only resets the event; it may be zero already.
        let _ = self.stop_event.read();
        self.stops.try_recv().ok()
    }

    /// The end of the serial console's output.
    pub fn console(&self) -> &Tail {
        &self.console
    }

    /// End every vCPU and get the final counts. One whose thread died of a bug is missing.
    pub fn end(mut self) -> Vec<VcpuDump> {
        self.console.close();
        std::mem::take(&mut self.vcpus).into_iter().filter_map(Vcpu::end).collect()
    }
}

/// What the vCPUs of a machine are made with.
struct Workshop<'a> {
    config: &'a Config,
    vcpus: u8,
    entry: Entry,
    supported: CpuId,
    processor: Host,
    memory: GuestMemoryMmap,
    ports: Arc<Ports>,
    controls: Arc<ControlTable>,
    stops: Sender<Stop>,
}

impl Workshop<'_> {
    /// vCPU `index` as it is before its first instruction.
    fn create_vcpu(&self, vm: &VmFd, index: u8) -> Result<VcpuFd, Error> {
        let mut fd = vm.create_vcpu(u64::from(index)).map_err(|e| Error::Kvm("CREATE_VCPU", e))?;
        let shown = Shown::of(&self.config.pmu, &self.processor);
        let leaves = cpuid::for_vcpu(&self.supported, index, self.vcpus, shown)?;
        fd.set_cpuid2(&leaves).map_err(|e| Error::Kvm("SET_CPUID2", e))?;
        registers::set_common(&fd)?;
        let engine = self.config.pmu.of_engine();
        if engine.is_some_and(shows_intel) {
            registers::set_perfmon_available(&fd)?;
        }
        if index == 0 {
            if engine.is_some_and(|pmu| pmu.rdpmc_faults) {
                rdpmc_trial::must_fault(&mut fd, &self.memory)?;
            }
            registers::set_boot(&fd, self.entry)?;
        }
        Ok(fd)
    }

    /// Its thread, which waits.
    fn spawn_vcpu<H, F>(&self, machine: &Machine, index: u8, fd: VcpuFd, host: F) -> Result<Vcpu, Error>
    where
        H: HostPmu + 'static,
        F: Fn(u64) -> H + Send + 'static,
    {
        let engine = self.config.pmu.of_engine().copied();
        let (ports, session) = (Arc::clone(&self.ports), Arc::clone(&machine.session));
        let (memory, controls) = (self.memory.clone(), Arc::clone(&self.controls));
        let handler = move |fd: &VcpuFd| {
            let pmu = engine
                .map(|pmu| VirtualPmu::new(pmu, index.into(), controls, host(tsc::offset(fd).unwrap_or(0))));
            VcpuExitHandler::new(index, ports, session, pmu, memory)
        };
        let event = machine.stop_event.try_clone().map_err(Error::Resources)?;
        let report = Reporter { stops: self.stops.clone(), event };
        let masks = engine.is_some_and(|pmu| pmu.model.facts().lvtpc_masks);
        let lvtpc = Lvtpc::new(Arc::clone(&machine.vm), index, masks);
        let confinement = self.config.confinement.clone();
        Vcpu::spawn(index, fd, lvtpc, self.config.pmu.of_kvm(), handler, report, confinement)
            .map_err(Error::Resources)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.console.close();
        // A machine that failed half-made has paused threads: none may outlive it.
        for vcpu in self.vcpus.drain(..) {
            vcpu.end();
        }
    }
}

/// Whether the guest's PMU is one of Intel's, behind registers.
fn shows_intel(pmu: &PmuConfig) -> bool {
    pmu.pmu_registers && pmu.model.facts().identity.is_some_and(|identity| identity.vendor == b"GenuineIntel")
}

fn check_vcpus(kvm: &Kvm, asked: u32) -> Result<u8, Error> {
    let most = u32::try_from(kvm.get_max_vcpus()).unwrap_or(u32::MAX).min(u32::from(MAX_VCPUS));
    match u8::try_from(asked) {
        Ok(vcpus) if vcpus > 0 && asked <= most => Ok(vcpus),
        _ => Err(Error::Vcpus { asked, most }),
    }
}

fn create_vm(kvm: &Kvm) -> Result<VmFd, Error> {
    let vm = kvm.create_vm().map_err(|e| Error::Kvm("CREATE_VM", e))?;
    vm.set_identity_map_address(address_map::KVM_IDENTITY_MAP)
        .map_err(|e| Error::Kvm("SET_IDENTITY_MAP_ADDR", e))?;
    vm.set_tss_address(address_map::KVM_TSS).map_err(|e| Error::Kvm("SET_TSS_ADDR", e))?;
    vm.create_irq_chip().map_err(|e| Error::Kvm("CREATE_IRQCHIP", e))?;
    Ok(vm)
}

#[allow(unsafe_code)]
fn map_memory(vm: &VmFd, memory: &GuestMemoryMmap) -> Result<(), Error> {
    for (slot, region) in memory.iter().enumerate() {
        let host = memory.get_host_address(region.start_addr()).map_err(Error::Memory)?;
        let slot = kvm_userspace_memory_region {
            slot: slot as u32,
            guest_phys_addr: region.start_addr().raw_value(),
            memory_size: region.len(),
            userspace_addr: host as u64,
            flags: 0,
        };
        // SAFETY: the range is `region`'s mapping. Every vCPU's thread holds a clone of `memory`, so it stays
        // mapped for as long as the guest can run.
        unsafe { vm.set_user_memory_region(slot) }.map_err(|e| Error::Kvm("SET_USER_MEMORY_REGION", e))?;
    }
    Ok(())
}

/// What test kernels expect beyond Linux's machine: a PC's timer, and ports of QEMU's.
fn create_test_devices(vm: &VmFd, vcpus: u8, memory: u64) -> Result<TestPorts, Error> {
    let timer = kvm_pit_config { flags: KVM_PIT_SPEAKER_DUMMY, ..Default::default() };
    vm.create_pit2(timer).map_err(|e| Error::Kvm("CREATE_PIT2", e))?;
    Ok(TestPorts::new(vcpus, memory))
}

fn create_ports(
    vm: &VmFd,
    console: Option<Box<dyn io::Write + Send>>,
    test: Option<TestPorts>,
    confinement: &Confinement,
) -> Result<(Arc<Ports>, Tail), Error> {
    let line = EventFd::new(EFD_NONBLOCK).map_err(Error::Resources)?;
    vm.register_irqfd(&line, address_map::COM1_GSI).map_err(|e| Error::Kvm("IRQFD", e))?;
    // A test kernel has no other output.
    let when_full = if test.is_some() { WhenFull::Wait } else { WhenFull::Lose };
    let (output, tail) = Output::new(console, when_full, confinement).map_err(Error::Resources)?;
    Ok((Arc::new(Ports::new(line, output, test)), tail))
}

fn create_session(vm: &VmFd, memory: &GuestMemoryMmap) -> Result<Arc<MmioTransport>, Error> {
    let session = MmioTransport::new(memory.clone()).map_err(Error::Resources)?;
    vm.register_irqfd(session.irq_event(), address_map::VIRTIO_GSI).map_err(|e| Error::Kvm("IRQFD", e))?;
    let notify = IoEventAddress::Mmio(address_map::VIRTIO_MMIO + crate::virtio::QUEUE_NOTIFY);
    for (queue, event) in session.queue_events().iter().enumerate() {
        vm.register_ioevent(event, &notify, queue as u32).map_err(|e| Error::Kvm("IOEVENTFD", e))?;
    }
    Ok(Arc::new(session))
}
