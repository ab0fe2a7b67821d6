//! Guests and clients that mean harm: signals and dumps are served all the same.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use virtio_bindings::virtio_mmio as register;

use crate::guest::{Step, image};
use crate::trial::trial;
use crate::{kernel, test_kernels};

/// Enough on a busy machine, and less than a dump waits for a machine that does not answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// The session console's registers.
const CONSOLE: u64 = 0xD000_0000;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial("hostile_console_resets", console_resets), trial("hostile_control_clients", control_clients)]
}

/// A machine of the command's that ends with the test.
struct Machine {
    folder: tempfile::TempDir,
    child: Child,
}

impl Machine {
    fn start(kernel: impl FnOnce(&Path), words: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        kernel(&folder.path().join("kernel"));
        let mut command = Self::perfvisor(folder.path());
        command.args(["run", "--pmu", "none", "--memory", "64M", "--name", "hostile", "--kernel", "kernel"]);
        change(command.args(words));
        Self { child: command.spawn().unwrap(), folder }
    }

    /// As inside the lab: on this host, whatever its KVM's speed.
    fn perfvisor(folder: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perfvisor"));
        command.env("XDG_RUNTIME_DIR", folder).env("PERFVISOR_INSIDE_LAB", "1").current_dir(folder);
        command
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("perfvisor/hostile.sock")
    }

    fn wait_for_socket(&self) {
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < deadline, "no control socket");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().count()
    }

    /// A dump, and how long it took.
    fn dump(&self) -> Duration {
        let begun = Instant::now();
        let dump = Self::perfvisor(self.folder.path()).args(["dump", "hostile"]).output().unwrap();
        let errors = String::from_utf8_lossy(&dump.stderr);
        assert!(dump.status.success(), "after {:?}: {errors}", begun.elapsed());
        assert!(begun.elapsed() < PATIENCE, "a dump took {:?}", begun.elapsed());
        begun.elapsed()
    }

    /// One SIGTERM, and the status it ends with.
    fn end(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "SIGTERM does not end it");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resets the session console, gives it a queue outside of memory and starts it, again and again.
fn console_resets() {
    let store = |register: u32, value| Step::Store32(CONSOLE + u64::from(register), value);
    let again = [
        store(register::VIRTIO_MMIO_STATUS, 0),
        store(register::VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1),
        store(register::VIRTIO_MMIO_DRIVER_FEATURES, 1),
        store(register::VIRTIO_MMIO_STATUS, 11),
        store(register::VIRTIO_MMIO_QUEUE_SEL, 1),
        store(register::VIRTIO_MMIO_QUEUE_NUM, 16),
        store(register::VIRTIO_MMIO_QUEUE_DESC_HIGH, 0x7FFF_0000),
        store(register::VIRTIO_MMIO_QUEUE_READY, 1),
        store(register::VIRTIO_MMIO_STATUS, 15),
        Step::Spin(200),
    ];
    // The console's interrupts would be the PIC's, and this guest does not handle those.
    let script =
        [&[Step::Out(0x21, 0xFF), Step::Out(0xA1, 0xFF)], &again[..], &[Step::Back(again.len())]].concat();
    // The reader of its standard error stands still.
    let (mut reader, errors) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&reader, 16384).unwrap();
    let kernel = |path: &Path| {
        std::fs::write(path, image(&script)).unwrap();
        std::fs::write(path.with_file_name("initrd"), [0; 512]).unwrap();
    };
    let mut machine = Machine::start(kernel, &["--initrd", "initrd", "--", "true"], |command| {
        command.stdin(Stdio::null()).stderr(errors);
    });
    let deadline = Instant::now() + PATIENCE;
    while rustix::io::ioctl_fionread(&reader).unwrap() == 0 {
        assert!(Instant::now() < deadline, "it says nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(2));
    if machine.child.try_wait().unwrap().is_some() {
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        panic!("it has ended: {said}");
    }
    println!("a dump took {:?}", machine.dump());
    assert_eq!(machine.end(), Some(128 + 15));
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    let messages = said.lines().filter(|line| line.contains("a queue outside of memory")).count();
    assert!((1..20).contains(&messages) && said.contains("more"), "{messages} messages:\n{said}");
}

/// Clients of the control socket that say nothing, too much, nonsense, or take no answer.
fn control_clients() {
    let spins = |path: &Path| test_kernels::write(path, &[kernel::Step::Spin]);
    let mut machine = Machine::start(spins, &["--console", "said"], |_| {});
    machine.wait_for_socket();
    println!("a dump took {:?}", machine.dump());
    let idle = machine.threads();

    let connect = || UnixStream::connect(machine.socket()).unwrap();
    let silent: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    println!("beside 100 silent clients: a dump took {:?}", machine.dump());
    // Less than before if the thread of the first dump had not ended then.
    let threads = machine.threads().saturating_sub(idle);
    assert!(threads <= 40, "{threads} threads for 100 clients");
    let deaf: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut client = connect();
            let _ = client.write_all(b"\"dump\"\n");
            client
        })
        .collect();
    println!("beside 100 that take no answer: a dump took {:?}", machine.dump());
    let garbage: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut client = connect();
            client.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            // It need not take all of it.
            let _ = client.write_all(&[b'{'; 4 << 20]);
            client
        })
        .collect();
    println!("beside 20 with megabytes of nonsense: a dump took {:?}", machine.dump());
    // One that comes byte by byte has no more time than others.
    let mut slow = connect();
    let begun = Instant::now();
    while slow.write_all(b" ").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "a request may take for ever");
        std::thread::sleep(Duration::from_millis(200));
    }
    println!("a request byte by byte was given up after {:?}", begun.elapsed());
    let status = std::fs::read_to_string(format!("/proc/{}/status", machine.child.id())).unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    println!("{peak}");
    assert_eq!(machine.end(), Some(128 + 15));
    drop((silent, deaf, garbage));
}
