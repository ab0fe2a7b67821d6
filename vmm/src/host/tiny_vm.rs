//! A throw-away VM that runs a few bytes of real-mode code up to HLT, to try what no ioctl reports about a KVM.

use kvm_bindings::{kvm_regs, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// The code is here, below it the interrupt vectors of real mode.
pub(super) const CODE_AT: u16 = 0x1000;
const MEMORY: usize = 0x2000;

/// Why a probe could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// KVM refused a step.
    #[error("{0}: {1}")]
    Kvm(&'static str, kvm_ioctls::Error),
    /// KVM cannot be used as a machine would.
    #[error("{0}")]
    Machine(Box<crate::machine::Error>),
    /// No memory for it.
    #[error("memory: {0}")]
    Memory(String),
    /// The guest did something else than halt.
    #[error("unexpected exit {0}")]
    Exit(String),
}

impl From<crate::machine::Error> for Error {
    fn from(error: crate::machine::Error) -> Self {
        Self::Machine(Box::new(error))
    }
}

/// One vCPU in real mode, without an interrupt controller, so that a halt comes to us.
pub(super) struct TinyVm {
    pub(super) vcpu: VcpuFd,
    // Below the vCPU, which goes first.
    _vm: VmFd,
    pub(super) memory: GuestMemoryMmap,
}

impl TinyVm {
    /// A VM with `code`, and with `handlers`: vector and address. `prepare` comes before the vCPU.
    pub(super) fn new(
        kvm: &Kvm,
        code: &[u8],
        handlers: &[(u8, u16)],
        prepare: impl FnOnce(&VmFd) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)])
            .map_err(|e| Error::Memory(e.to_string()))?;
        let put = |bytes: &[u8], at: u64| {
            memory.write_slice(bytes, GuestAddress(at)).map_err(|e| Error::Memory(e.to_string()))
        };
        put(code, CODE_AT.into())?;
        for (vector, handler) in handlers {
            put(&handler.to_le_bytes(), 4 * u64::from(*vector))?;
        }
        let vm = kvm.create_vm().map_err(|e| Error::Kvm("CREATE_VM", e))?;
        map(&vm, &memory)?;
        prepare(&vm)?;
        let vcpu = vm.create_vcpu(0).map_err(|e| Error::Kvm("CREATE_VCPU", e))?;
        let mut sregs = vcpu.get_sregs().map_err(|e| Error::Kvm("GET_SREGS", e))?;
        sregs.cs.base = 0;
        sregs.cs.selector = 0;
        vcpu.set_sregs(&sregs).map_err(|e| Error::Kvm("SET_SREGS", e))?;
        Ok(Self { vcpu, _vm: vm, memory })
    }

    /// Ready to run the code from its start.
    pub(super) fn rewind(&self) -> Result<(), Error> {
        let start = kvm_regs { rip: CODE_AT.into(), rsp: CODE_AT.into(), rflags: 2, ..Default::default() };
        self.vcpu.set_regs(&start).map_err(|e| Error::Kvm("SET_REGS", e))
    }

    /// Run to the next HLT.
    pub(super) fn run(&mut self) -> Result<(), Error> {
        loop {
            match self.vcpu.run() {
                Ok(VcpuExit::Hlt) => return Ok(()),
                Ok(VcpuExit::Intr) => {}
                Ok(other) => return Err(Error::Exit(format!("{other:?}"))),
                Err(e) if e.errno() == libc::EINTR => {}
                Err(e) => return Err(Error::Kvm("RUN", e)),
            }
        }
    }
}

#[allow(unsafe_code)]
fn map(vm: &VmFd, memory: &GuestMemoryMmap) -> Result<(), Error> {
    let host = memory.get_host_address(GuestAddress(0)).map_err(|e| Error::Memory(e.to_string()))?;
    let region = kvm_userspace_memory_region {
        slot: 0,
        guest_phys_addr: 0,
        memory_size: MEMORY as u64,
        userspace_addr: host as u64,
        flags: 0,
    };
    // SAFETY: the range is `memory`'s mapping, which `TinyVm` keeps until its vCPU is gone; before it has one, nothing
    // runs.
    unsafe { vm.set_user_memory_region(region) }.map_err(|e| Error::Kvm("SET_USER_MEMORY_REGION", e))
}
