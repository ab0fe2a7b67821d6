//! Machines that run a guest of these tests to its end.

use std::any::TypeId;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perfvisor::confinement::{Confinement, Counting};
use perfvisor::devices::stop::Stop;
use perfvisor::dump::VcpuDump;
use perfvisor::machine::{Config, GuestPmu, Initrd, Machine, Module};
use vpmu::module::ModulePmu;
use vpmu::perf::PerfPmu;
use vpmu::{HostFamily, HostPmu, Model, PmuConfig};

use crate::guest::{Given, Program, Results, Step, image, image_of, results};

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

/// The PMU of the machines below, with both interfaces.
pub(crate) fn pmu(model: Model) -> PmuConfig {
    PmuConfig {
        model,
        host: HostFamily::Zen2.processor(),
        core_khz: 1_000_000,
        pmu_registers: true,
        rdpmc_faults: true,
    }
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
        pmu: GuestPmu::None,
        confinement: confinement(Counting::Nothing),
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
        confinement: pmu.as_ref().map_or_else(|| confinement(Counting::Nothing), |_| confinement_of::<H>()),
        pmu: pmu.map_or(GuestPmu::None, GuestPmu::Virtual),
    };
    let serial = Collected::default();
    let console = Box::new(serial.clone());
    let kvm = kvm_ioctls::Kvm::new().unwrap();
    let machine = Machine::new(&kvm, &config, Some(console), host).unwrap();
    (machine, serial)
}

/// For a machine that counts with `H`. The sources of these tests make calls of their own, so their machines have none.
fn confinement_of<H: 'static>() -> Confinement {
    let source = TypeId::of::<H>();
    if source == TypeId::of::<PerfPmu>() {
        confinement(Counting::Perf)
    } else if source == TypeId::of::<ModulePmu>() {
        confinement(Counting::Module)
    } else {
        Confinement::none()
    }
}

/// As the command has it. The test's own thread, which is the machine's main thread, goes on without.
fn confinement(counting: Counting) -> Confinement {
    Confinement::prepare(counting).unwrap()
}

/// Wait until the machine says that it stops.
pub(crate) fn wait(machine: &Machine) -> Stop {
    for _ in 0..6000 {
        if let Some(stop) = machine.stop() {
            return stop;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let dumps: Vec<_> =
        machine.remotes().iter().map(|vcpu| vcpu.dump().recv_timeout(Duration::from_secs(2))).collect();
    panic!("the guest did not stop within 30 s: {dumps:#?}");
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
