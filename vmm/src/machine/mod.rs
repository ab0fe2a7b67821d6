//! The machine: KVM's VM with its memory, devices and vCPUs, from construction to its end.

mod acpi;
pub mod boot;
pub(crate) mod cpuid;
pub(crate) mod filter;
mod identity;
pub mod kvm_pmu;
pub(crate) mod layout;
mod memory;
pub(crate) mod rdpmc;
mod registers;
mod tsc;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use kvm_bindings::{KVM_PIT_SPEAKER_DUMMY, kvm_pit_config, kvm_userspace_memory_region};
use kvm_ioctls::{IoEventAddress, Kvm, VmFd};
use vm_memory::{Address, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vpmu::{ControlTable, Host, HostPmu, PmuConfig, VirtualPmu};

use crate::confinement::Confinement;
use crate::devices::console::{Output, Tail, WhenFull};
use crate::devices::ports::{Ports, Stop};
use crate::devices::test_ports::TestPorts;
use crate::doors::VcpuDoors;
use crate::dump::VcpuDump;
use crate::vcpu::lvtpc::Lvtpc;
use crate::vcpu::{Remote, Report, Vcpu};
use crate::virtio::MmioTransport;
use boot::{Entry, Initrd, Module};
use cpuid::Shown;
use kvm_pmu::KvmPmu;

/// APIC ids are 8 bits in the tables that this machine writes, and 255 means all.
pub const MOST_VCPUS: u8 = 254;

/// Why a machine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No /dev/kvm.
    #[error("/dev/kvm: {0}; see 'perfvisor doctor'")]
    OpenKvm(kvm_ioctls::Error),
    /// KVM refused something.
    #[error("KVM refused {0}: {1}")]
    Kvm(&'static str, kvm_ioctls::Error),
    /// KVM cannot keep PMU registers from the guest.
    #[error(
        "this KVM has no MSR filter, so it would answer PMU registers itself; use a host kernel of Linux 5.10 or later"
    )]
    NoMsrFilter,
    /// Too many CPUID leaves.
    #[error("{0} CPUID leaves are more than KVM takes")]
    TooManyCpuidLeaves(usize),
    /// Wrong number of vCPUs.
    #[error("{asked} vCPUs are not possible: this host's KVM allows 1 to {most}")]
    Vcpus {
        /// What was asked for.
        asked: u32,
        /// What can be had.
        most: u32,
    },
    /// Too little memory.
    #[error("{} MiB of memory are too little: give the guest at least {} MiB", .asked >> 20, memory::LEAST >> 20)]
    TooLittleMemory {
        /// What was asked for, in bytes.
        asked: u64,
    },
    /// Not whole pages.
    #[error("{asked} bytes of memory are not whole pages: give the guest a multiple of {} KiB", memory::PAGE >> 10)]
    PartialPage {
        /// What was asked for, in bytes.
        asked: u64,
    },
    /// Too much memory.
    #[error("{} MiB of memory are more than this host has ({} MiB)", .asked >> 20, .host >> 20)]
    TooMuchMemory {
        /// What was asked for, in bytes.
        asked: u64,
        /// What there is, in bytes.
        host: u64,
    },
    /// The host's memory could not be asked for.
    #[error("cannot tell how much memory this host has: {0}")]
    HostMemory(io::Error),
    /// The host does not give it.
    #[error("cannot reserve {} MiB for the guest: {reason}", .asked >> 20)]
    Reserve {
        /// What was asked for, in bytes.
        asked: u64,
        /// The refusal.
        reason: String,
    },
    /// An access to guest memory failed.
    #[error("guest memory: {0}")]
    Memory(vm_memory::GuestMemoryError),
    /// ACPI tables too long.
    #[error("the ACPI tables do not fit into their place")]
    AcpiRoom,
    /// The guest would read wrong numbers.
    #[error(transparent)]
    Rdpmc(rdpmc::Refusal),
    /// A vCPU did not do what it was tried with.
    #[error(
        "a vCPU made an unexpected exit ({0}) in the trial before its boot; '--msr-door off' leaves the trial out"
    )]
    Probe(String),
    /// The kernel cannot be loaded.
    #[error("kernel {}: {reason}", .path.display())]
    Kernel {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The initial RAM disk cannot be loaded.
    #[error("initial RAM disk {}: {reason}", .path.display())]
    Initrd {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A module cannot be loaded.
    #[error("module {}: {reason}", .path.display())]
    Module {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A kernel fills memory so that nothing can be told to it.
    #[error(
        "the kernel leaves no room for {size} bytes of boot information; give the guest more memory (--memory)"
    )]
    BootInformation {
        /// How much is needed.
        size: u64,
    },
    /// The command line is too long.
    #[error("the kernel command line has {length} characters; this kernel takes {limit}, without NUL")]
    CommandLine {
        /// How long it is.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// A thread or an eventfd could not be had.
    #[error("the host gives no more threads or file descriptors: {0}")]
    Resources(io::Error),
}

/// The PMU that a guest gets.
#[derive(Clone, Copy, Debug)]
pub enum GuestPmu {
    /// None.
    None,
    /// The engine's, behind perfvisor's doors.
    Virtual(PmuConfig),
    /// KVM's own, of which the VMM sees nothing but what it asks for.
    Kvm(KvmPmu),
}

impl GuestPmu {
    /// The engine's configuration, if it is the engine's.
    fn of_engine(&self) -> Option<&PmuConfig> {
        match self {
            Self::Virtual(config) => Some(config),
            Self::None | Self::Kvm(_) => None,
        }
    }

    fn of_kvm(&self) -> Option<KvmPmu> {
        match self {
            Self::Kvm(pmu) => Some(*pmu),
            Self::None | Self::Virtual(_) => None,
        }
    }
}

/// What a machine is made of.
pub struct Config {
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// A kernel that [`boot::recognize`] knows.
    pub kernel: PathBuf,
    /// The initial RAM disk of a Linux kernel.
    pub initrd: Initrd,
    /// What a kernel of another kind is given.
    pub modules: Vec<Module>,
    /// Its command line.
    pub cmdline: String,
    /// The virtual PMU.
    pub pmu: GuestPmu,
    /// Of the machine's threads.
    pub confinement: Confinement,
}

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
        let supported = cpuid::supported(kvm)?;
        let processor = Host::detect();
        let controls = ControlTable::new();
        let mut machine = Self { vcpus: Vec::new(), vm: Arc::new(vm), session, stops, stop_event, console };
        // All are created before the first runs: an AP must exist when the first vCPU wakes it.
        for index in 0..vcpus {
            let mut fd =
                machine.vm.create_vcpu(u64::from(index)).map_err(|e| Error::Kvm("CREATE_VCPU", e))?;
            let leaves = cpuid::for_vcpu(&supported, index, vcpus, Shown::of(&config.pmu, &processor))?;
            fd.set_cpuid2(&leaves).map_err(|e| Error::Kvm("SET_CPUID2", e))?;
            registers::set_common(&fd)?;
            if engine.is_some_and(shows_intel) {
                registers::set_perfmon_available(&fd)?;
            }
            if index == 0 {
                if engine.is_some_and(|pmu| pmu.rdpmc_faults) {
                    rdpmc::must_fault(&mut fd, &memory)?;
                }
                registers::set_boot(&fd, entry)?;
            }
            let (host, pmu, controls) = (host.clone(), engine.copied(), Arc::clone(&controls));
            let (ports, session, memory) = (Arc::clone(&ports), Arc::clone(&machine.session), memory.clone());
            let report = Reporter {
                stops: stop_sender.clone(),
                event: machine.stop_event.try_clone().map_err(Error::Resources)?,
            };
            let doors = move |fd: &kvm_ioctls::VcpuFd| {
                let pmu = pmu.map(|pmu| {
                    VirtualPmu::new(pmu, index.into(), controls, host(tsc::offset(fd).unwrap_or(0)))
                });
                VcpuDoors::new(index, ports, session, pmu, memory)
            };
            let masks = engine.is_some_and(|pmu| pmu.model.facts().lvtpc_masks);
            let lvtpc = Lvtpc::new(Arc::clone(&machine.vm), index, masks);
            let confinement = config.confinement.clone();
            let vcpu = Vcpu::spawn(index, fd, lvtpc, config.pmu.of_kvm(), doors, report, confinement);
            machine.vcpus.push(vcpu.map_err(Error::Resources)?);
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
    pmu.msr_door && pmu.model.facts().identity.is_some_and(|identity| identity.vendor == b"GenuineIntel")
}

fn check_vcpus(kvm: &Kvm, asked: u32) -> Result<u8, Error> {
    let most = u32::try_from(kvm.get_max_vcpus()).unwrap_or(u32::MAX).min(u32::from(MOST_VCPUS));
    match u8::try_from(asked) {
        Ok(vcpus) if vcpus > 0 && asked <= most => Ok(vcpus),
        _ => Err(Error::Vcpus { asked, most }),
    }
}

fn create_vm(kvm: &Kvm) -> Result<VmFd, Error> {
    let vm = kvm.create_vm().map_err(|e| Error::Kvm("CREATE_VM", e))?;
    vm.set_identity_map_address(layout::KVM_IDENTITY_MAP)
        .map_err(|e| Error::Kvm("SET_IDENTITY_MAP_ADDR", e))?;
    vm.set_tss_address(layout::KVM_TSS).map_err(|e| Error::Kvm("SET_TSS_ADDR", e))?;
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
    vm.register_irqfd(&line, layout::COM1_GSI).map_err(|e| Error::Kvm("IRQFD", e))?;
    // A test kernel has no other output.
    let when_full = if test.is_some() { WhenFull::Wait } else { WhenFull::Lose };
    let (output, tail) = Output::new(console, when_full, confinement).map_err(Error::Resources)?;
    Ok((Arc::new(Ports::new(line, output, test)), tail))
}

fn create_session(vm: &VmFd, memory: &GuestMemoryMmap) -> Result<Arc<MmioTransport>, Error> {
    let session = MmioTransport::new(memory.clone()).map_err(Error::Resources)?;
    vm.register_irqfd(session.irq_event(), layout::VIRTIO_GSI).map_err(|e| Error::Kvm("IRQFD", e))?;
    let notify = IoEventAddress::Mmio(layout::VIRTIO_MMIO + crate::virtio::QUEUE_NOTIFY);
    for (queue, event) in session.queue_events().iter().enumerate() {
        vm.register_ioevent(event, &notify, queue as u32).map_err(|e| Error::Kvm("IOEVENTFD", e))?;
    }
    Ok(Arc::new(session))
}
