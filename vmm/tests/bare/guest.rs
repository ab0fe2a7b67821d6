//! A guest that executes a script of register and memory accesses and tells the results over its serial port.
#![allow(unsafe_code)]

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perfvisor::devices::ports::Stop;
use perfvisor::dump::VcpuDump;
use perfvisor::machine::boot::{Initrd, Module};
use perfvisor::machine::{Config, Machine};
use vpmu::perf::PerfPmu;
use vpmu::{HostFamily, Model, PmuConfig};

/// One step of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// WRMSR.
    WriteMsr(u32, u64),
    /// RDMSR.
    ReadMsr(u32),
    /// Write eight bytes of memory.
    Store(u64, u64),
    /// Read eight bytes of memory.
    Load(u64),
    /// Read four bytes of memory.
    Load32(u64),
    /// Write a byte to a port.
    Out(u16, u8),
    /// CPUID: the value is EBX in the high half and EAX in the low half.
    Cpuid(u32),
    /// Execute a loop of this many rounds.
    Spin(u64),
    /// RDPMC.
    Rdpmc(u32),
}

/// What a step gave: a value (0 for writes), or a #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Value(u64),
    Fault,
}

// Entered in long mode with an identity map, by the 64-bit boot protocol. r12: next step. Each step is three
// quadwords: kind, argument, value. Each result is nine bytes on the serial port: 0 or 1 for a fault, the value.
// A #GP handler skips the faulting two-byte instruction (WRMSR, RDMSR and RDPMC are).
core::arch::global_asm!(
    ".pushsection .rodata.bare_guest, \"a\"",
    ".balign 16",
    "bare_guest_start:",
    "mov rsp, 0x80000",
    // A gate for vector 13 at 0x60000 + 13 * 16.
    "lea rax, [rip + 50f]",
    "mov rdi, 0x600d0",
    "mov word ptr [rdi], ax",
    "mov word ptr [rdi + 2], 0x10",
    "mov word ptr [rdi + 4], 0x8e00",
    "shr rax, 16",
    "mov word ptr [rdi + 6], ax",
    "shr rax, 16",
    "mov dword ptr [rdi + 8], eax",
    "mov dword ptr [rdi + 12], 0",
    "mov rdi, 0x61000",
    "mov word ptr [rdi], 0xff",
    "mov qword ptr [rdi + 2], 0x60000",
    "lidt [rdi]",
    "lea r12, [rip + bare_guest_end]",
    "2:",
    "xor r15d, r15d",
    "xor r14d, r14d",
    "mov rax, [r12]",
    "mov rcx, [r12 + 8]",
    "mov rbx, [r12 + 16]",
    "add r12, 24",
    "test rax, rax",
    "jz 40f",
    "cmp rax, 1",
    "je 10f",
    "cmp rax, 2",
    "je 11f",
    "cmp rax, 3",
    "je 12f",
    "cmp rax, 4",
    "je 13f",
    "cmp rax, 5",
    "je 14f",
    "cmp rax, 6",
    "je 15f",
    "cmp rax, 8",
    "je 17f",
    "cmp rax, 9",
    "je 18f",
    "16:",
    "dec rcx",
    "jnz 16b",
    "jmp 20f",
    "17:",
    "mov r14d, [rcx]",
    "jmp 20f",
    "18:",
    "xor eax, eax",
    "xor edx, edx",
    "rdpmc",
    "shl rdx, 32",
    "or rax, rdx",
    "mov r14, rax",
    "jmp 20f",
    "10:",
    "mov eax, ebx",
    "mov rdx, rbx",
    "shr rdx, 32",
    "wrmsr",
    "jmp 20f",
    "11:",
    "xor eax, eax",
    "xor edx, edx",
    "rdmsr",
    "shl rdx, 32",
    "or rax, rdx",
    "mov r14, rax",
    "jmp 20f",
    "12:",
    "mov [rcx], rbx",
    "jmp 20f",
    "13:",
    "mov r14, [rcx]",
    "jmp 20f",
    "14:",
    "mov edx, ecx",
    "mov eax, ebx",
    "out dx, al",
    "jmp 20f",
    "15:",
    "mov eax, ecx",
    "xor ecx, ecx",
    "cpuid",
    "shl rbx, 32",
    "mov eax, eax",
    "or rax, rbx",
    "mov r14, rax",
    // The result.
    "20:",
    "mov edx, 0x3f8",
    "mov eax, r15d",
    "out dx, al",
    "mov ecx, 8",
    "21:",
    "mov eax, r14d",
    "out dx, al",
    "shr r14, 8",
    "dec ecx",
    "jnz 21b",
    "jmp 2b",
    // The end: ACPI power-off.
    "40:",
    "mov edx, 0x600",
    "mov eax, 0x34",
    "out dx, al",
    "41:",
    "hlt",
    "jmp 41b",
    // #GP.
    "50:",
    "mov r15d, 1",
    "add rsp, 8",
    "add qword ptr [rsp], 2",
    "iretq",
    ".balign 8",
    "bare_guest_end:",
    ".popsection",
);

unsafe extern "C" {
    static bare_guest_start: u8;
    static bare_guest_end: u8;
}

fn code() -> &'static [u8] {
    let (start, end) = (&raw const bare_guest_start, &raw const bare_guest_end);
    // SAFETY: both symbols are in one section, in this order, and what is between them is initialised code.
    unsafe { std::slice::from_raw_parts(start, end.offset_from(start) as usize) }
}

/// A bzImage whose 64-bit entry is the interpreter, with `script` behind it.
pub(crate) fn image(script: &[Step]) -> Vec<u8> {
    let mut body = vec![0u8; 0x200];
    body.extend(code());
    for step in script {
        let (kind, argument, value) = match *step {
            Step::WriteMsr(msr, value) => (1u64, u64::from(msr), value),
            Step::ReadMsr(msr) => (2, u64::from(msr), 0),
            Step::Store(at, value) => (3, at, value),
            Step::Load(at) => (4, at, 0),
            Step::Out(port, value) => (5, u64::from(port), u64::from(value)),
            Step::Cpuid(leaf) => (6, u64::from(leaf), 0),
            Step::Spin(rounds) => (7, rounds, 0),
            Step::Load32(at) => (8, at, 0),
            Step::Rdpmc(counter) => (9, u64::from(counter), 0),
        };
        body.extend([kind, argument, value].iter().flat_map(|q| q.to_le_bytes()));
    }
    body.extend([0; 24]);
    body.resize(body.len().next_multiple_of(16), 0);

    let mut image = vec![0u8; 1024];
    image[0x1F1] = 1;
    image[0x1F4..0x1F8].copy_from_slice(&(body.len() as u32 / 16).to_le_bytes());
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x020Fu16.to_le_bytes());
    image[0x211] = 1;
    image[0x214..0x218].copy_from_slice(&0x10_0000u32.to_le_bytes());
    image[0x22C..0x230].copy_from_slice(&0x7FFF_FFFFu32.to_le_bytes());
    image[0x236..0x238].copy_from_slice(&1u16.to_le_bytes());
    image[0x238..0x23C].copy_from_slice(&2047u32.to_le_bytes());
    image[0x258..0x260].copy_from_slice(&0x10_0000u64.to_le_bytes());
    image[0x260..0x264].copy_from_slice(&(1u32 << 20).to_le_bytes());
    image.extend(body);
    image
}

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<u8>>>);

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How a guest ended.
pub(crate) struct Ran {
    /// What each step gave.
    pub(crate) given: Vec<Given>,
    /// Why the machine stopped.
    pub(crate) stop: Stop,
    /// What its vCPUs counted.
    pub(crate) dumps: Vec<VcpuDump>,
}

/// A machine with the script's image as its kernel, paused.
pub(crate) fn machine(model: Model, vcpus: u32, script: &[Step]) -> (Machine, impl FnOnce() -> Vec<u8>) {
    machine_of(model, vcpus, &image(script), |_| PerfPmu::new())
}

/// The same; `host` makes the source of counts in each vCPU's thread.
pub(crate) fn machine_with_host(
    script: &[Step],
    host: impl Fn(u64) -> PerfPmu + Clone + Send + 'static,
) -> Machine {
    machine_of(Model::K8, 1, &image(script), host).0
}

/// Run a machine with `image` as its kernel until it stops.
pub(crate) fn run_image(image: &[u8]) -> Stop {
    let (machine, _) = machine_of(Model::Generic, 1, image, |_| PerfPmu::new());
    machine.run();
    wait(&machine)
}

/// Run a machine with the test kernel in this file until it stops: what its serial port said, and why it stopped.
pub(crate) fn run_kernel(kernel: &Path, cmdline: &str, modules: Vec<Module>) -> (Vec<u8>, Stop) {
    let config = Config {
        vcpus: 1,
        memory: 64 << 20,
        kernel: kernel.to_owned(),
        initrd: Initrd::default(),
        modules,
        cmdline: cmdline.to_owned(),
        pmu: None,
    };
    let serial = Collected::default();
    let kvm = kvm_ioctls::Kvm::new().unwrap();
    let machine = Machine::new(&kvm, &config, Some(Box::new(serial.clone())), |_| PerfPmu::new()).unwrap();
    machine.run();
    let stop = wait(&machine);
    machine.end();
    let said = serial.0.lock().unwrap().clone();
    (said, stop)
}

fn machine_of<F>(
    model: Model,
    vcpus: u32,
    image: &[u8],
    host: F,
) -> (Machine, impl FnOnce() -> Vec<u8> + use<F>)
where
    F: Fn(u64) -> PerfPmu + Clone + Send + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    let kernel = folder.path().join("bzImage");
    std::fs::write(&kernel, image).unwrap();
    let config = Config {
        vcpus,
        memory: 64 << 20,
        kernel,
        initrd: Initrd::default(),
        modules: Vec::new(),
        cmdline: String::new(),
        pmu: Some(PmuConfig {
            model,
            host: HostFamily::Amd,
            core_khz: 1_000_000,
            msr_door: true,
            rdpmc_faults: true,
        }),
    };
    let serial = Collected::default();
    let console = Box::new(serial.clone());
    let kvm = kvm_ioctls::Kvm::new().unwrap();
    let machine = Machine::new(&kvm, &config, Some(console), host).unwrap();
    (machine, move || serial.0.lock().unwrap().clone())
}

/// Wait until the machine says that it stops.
pub(crate) fn wait(machine: &Machine) -> Stop {
    for _ in 0..2000 {
        if let Some(stop) = machine.stop() {
            return stop;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the guest did not stop within 10 s");
}

/// Run `script` on the first of `vcpus` vCPUs.
pub(crate) fn run(model: Model, vcpus: u32, script: &[Step]) -> Ran {
    let (machine, serial) = machine(model, vcpus, script);
    machine.run();
    let stop = wait(&machine);
    let dumps = machine.end();
    let given = serial()
        .chunks_exact(9)
        .map(|result| match result {
            [0, value @ ..] => Given::Value(u64::from_le_bytes(value.try_into().unwrap())),
            _ => Given::Fault,
        })
        .collect();
    Ran { given, stop, dumps }
}
