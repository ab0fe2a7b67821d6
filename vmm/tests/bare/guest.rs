//! A guest that executes scripts of register and memory accesses and tells the results over its serial port.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perfvisor::devices::ports::Stop;
use perfvisor::dump::VcpuDump;
use perfvisor::machine::boot::{Initrd, Module};
use perfvisor::machine::{Config, Machine};
use vpmu::perf::PerfPmu;
use vpmu::{HostFamily, HostPmu, Model, PmuConfig};

use crate::guest_code::{MOST_VCPUS, code};

/// One step of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// WRMSR.
    WriteMsr(u32, u64),
    /// RDMSR.
    ReadMsr(u32),
    /// Write eight bytes of memory.
    Store(u64, u64),
    /// Write four bytes of memory.
    Store32(u64, u32),
    /// Read eight bytes of memory.
    Load(u64),
    /// Read four bytes of memory.
    Load32(u64),
    /// Add to eight bytes of memory, atomically.
    Add(u64, u64),
    /// Wait until eight bytes of memory are at least this: busily, or halted.
    Await(u64, u64),
    HaltUntil(u64, u64),
    /// Write a byte to a port.
    Out(u16, u8),
    /// CPUID: the value is EBX in the high half and EAX in the low half.
    Cpuid(u32),
    /// CPUID: EDX in the high half, ECX in the low half.
    CpuidMore(u32),
    /// Execute a loop of this many rounds, of two instructions each.
    Spin(u64),
    /// RDPMC.
    Rdpmc(u32),
    /// In a handler: how many rounds the interrupted loop still had to go, and how far from its first instruction
    /// it was interrupted.
    InterruptedRounds,
    InterruptedAt,
    /// From now on execute this one of the program's handlers; 0 from the beginning.
    Handler(usize),
}

impl Step {
    /// Number, argument and value, as `guest_code.rs` has them. `places`: of handlers.
    fn encode(self, places: &[u64]) -> [u64; 3] {
        let (kind, argument, value) = match self {
            Self::WriteMsr(msr, value) => (1u64, u64::from(msr), value),
            Self::ReadMsr(msr) => (2, u64::from(msr), 0),
            Self::Store(at, value) => (3, at, value),
            Self::Load(at) => (4, at, 0),
            Self::Out(port, value) => (5, u64::from(port), u64::from(value)),
            Self::Cpuid(leaf) => (6, u64::from(leaf), 0),
            Self::Spin(rounds) => (7, rounds, 0),
            Self::Load32(at) => (8, at, 0),
            Self::Rdpmc(counter) => (9, u64::from(counter), 0),
            Self::Store32(at, value) => (10, at, u64::from(value)),
            Self::Await(at, value) => (11, at, value),
            Self::HaltUntil(at, value) => (12, at, value),
            Self::Add(at, value) => (13, at, value),
            Self::CpuidMore(leaf) => (14, u64::from(leaf), 0),
            Self::InterruptedRounds => (15, 0, 0),
            Self::InterruptedAt => (16, 0, 0),
            Self::Handler(number) => (17, places[number], 0),
        };
        [kind, argument, value]
    }
}

/// What a step gave: a value (0 for writes), or a #GP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Value(u64),
    Fault,
}

impl Given {
    /// The value; a test fails where there is none.
    pub(crate) fn value(self) -> u64 {
        match self {
            Self::Value(value) => value,
            Self::Fault => panic!("a fault"),
        }
    }
}

/// What a vCPU executes: its main script, and one of its handlers each time it is interrupted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) main: Vec<Step>,
    pub(crate) handlers: Vec<Vec<Step>>,
}

/// What the steps of a [`Program`] gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) main: Vec<Given>,
    pub(crate) handler: Vec<Given>,
}

/// A bzImage whose 64-bit entry is the interpreter, with `script` behind it.
pub(crate) fn image(script: &[Step]) -> Vec<u8> {
    image_of(&[Program { main: script.to_vec(), handlers: Vec::new() }])
}

/// The same with a program for each vCPU; those after the first have to be woken.
fn image_of(programs: &[Program]) -> Vec<u8> {
    assert!(programs.len() <= MOST_VCPUS);
    let mut table = vec![0u64; 1 + 2 * MOST_VCPUS];
    table[0] = programs.len() as u64;
    let mut scripts = Vec::new();
    let mut end = table.len() as u64 * 8;
    for (i, program) in programs.iter().enumerate() {
        let mut place = |script: &Vec<Step>| {
            let at = end;
            end += 24 * (script.len() as u64 + 1);
            at
        };
        let main = place(&program.main);
        let mut handlers: Vec<u64> = program.handlers.iter().map(place).collect();
        for script in [&program.main].into_iter().chain(&program.handlers) {
            scripts.extend(script.iter().flat_map(|step| step.encode(&handlers)));
            scripts.extend([0; 3]);
        }
        // Without a handler, the end of the main script is an empty one.
        handlers.push(main + 24 * program.main.len() as u64);
        (table[1 + 2 * i], table[2 + 2 * i]) = (main, handlers[0]);
    }
    let mut body = vec![0u8; 0x200];
    body.extend(code());
    body.extend(table.iter().chain(&scripts).flat_map(|q| q.to_le_bytes()));
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

/// Reads what the guest's code says at its end.
fn results(said: &[u8], programs: usize) -> Vec<Results> {
    let mut bytes = said.iter().copied();
    let mut list = || {
        let mut list = Vec::new();
        loop {
            list.push(match bytes.next() {
                Some(0) => Given::Value(0),
                Some(1) => Given::Fault,
                Some(2) => Given::Value(u64::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap()))),
                // A guest that did not come to its end says nothing.
                _ => return list,
            });
        }
    };
    (0..programs).map(|_| Results { main: list(), handler: list() }).collect()
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
    /// What each step of the first vCPU gave.
    pub(crate) given: Vec<Given>,
    /// Why the machine stopped.
    pub(crate) stop: Stop,
    /// What its vCPUs counted.
    pub(crate) dumps: Vec<VcpuDump>,
}

/// The PMU of the machines below, with both doors.
pub(crate) fn pmu(model: Model) -> PmuConfig {
    PmuConfig { model, host: HostFamily::Zen2, core_khz: 1_000_000, msr_door: true, rdpmc_faults: true }
}

/// A machine with the script's image as its kernel, paused.
pub(crate) fn machine(model: Model, vcpus: u32, script: &[Step]) -> Machine {
    machine_of(Some(pmu(model)), vcpus, &image(script), |_| PerfPmu::new()).0
}

/// The same; `host` makes the source of counts in each vCPU's thread.
pub(crate) fn machine_with_host(
    script: &[Step],
    host: impl Fn(u64) -> PerfPmu + Clone + Send + 'static,
) -> Machine {
    machine_of(Some(pmu(Model::K8)), 1, &image(script), host).0
}

/// Run a machine with `image` as its kernel until it stops.
pub(crate) fn run_image(image: &[u8]) -> Stop {
    let (machine, _) = machine_of(None, 1, image, |_| PerfPmu::new());
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

fn machine_of<H, F>(pmu: Option<PmuConfig>, vcpus: u32, image: &[u8], host: F) -> (Machine, Collected)
where
    H: HostPmu + 'static,
    F: Fn(u64) -> H + Clone + Send + 'static,
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
        pmu,
    };
    let serial = Collected::default();
    let console = Box::new(serial.clone());
    let kvm = kvm_ioctls::Kvm::new().unwrap();
    let machine = Machine::new(&kvm, &config, Some(console), host).unwrap();
    (machine, serial)
}

/// Wait until the machine says that it stops.
pub(crate) fn wait(machine: &Machine) -> Stop {
    for _ in 0..6000 {
        if let Some(stop) = machine.stop() {
            return stop;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the guest did not stop within 30 s");
}

/// Run `script` on the first of `vcpus` vCPUs.
pub(crate) fn run(model: Model, vcpus: u32, script: &[Step]) -> Ran {
    let (machine, serial) = machine_of(Some(pmu(model)), vcpus, &image(script), |_| PerfPmu::new());
    machine.run();
    let stop = wait(&machine);
    let dumps = machine.end();
    let given = results(&serial.0.lock().unwrap(), 1).remove(0).main;
    Ran { given, stop, dumps }
}

/// Run a program on each vCPU until all have ended, with counts of `host`. `meanwhile` gets the machine once it runs.
pub(crate) fn run_programs<H, F>(
    pmu: PmuConfig,
    programs: &[Program],
    host: F,
    meanwhile: impl FnOnce(&Machine) -> Option<Stop>,
) -> (Vec<Results>, Vec<VcpuDump>)
where
    H: HostPmu + 'static,
    F: Fn(u64) -> H + Clone + Send + 'static,
{
    // The kick that starts a vCPU may come late. The vCPU has to have seen it before its guest begins: the engine reads its
    // counters at every kick.
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let opened = {
        let gate = Arc::clone(&gate);
        move |offset| {
            drop(gate.lock());
            host(offset)
        }
    };
    let (machine, serial) = machine_of(Some(pmu), programs.len() as u32, &image_of(programs), opened);
    machine.run();
    drop(closed);
    let stop = meanwhile(&machine).unwrap_or_else(|| wait(&machine));
    assert_eq!(stop, Stop::PowerOff, "{}", pmu.model);
    let dumps = machine.end();
    let results = results(&serial.0.lock().unwrap(), programs.len());
    for (program, results) in programs.iter().zip(&results) {
        assert_eq!(program.main.len(), results.main.len(), "{}: every step gave something", pmu.model);
    }
    (results, dumps)
}
