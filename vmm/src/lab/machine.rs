//! The lab machine's process: whether it runs, its start, its end.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::config::{LabConfig, PORTS};
use super::detached::{FILE_MAX, spawn_detached};
use crate::private_socket::private_listener;

/// How long QEMU gets to end after SIGTERM, and a machine to power off.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// So many lines of the console are shown after a failure: a kernel's panic and its backtrace.
const TAIL_LINES: usize = 30;

/// Whether a machine had to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    /// It ran.
    Already,
    /// It was started now.
    Started,
}

/// The machine that belongs to a configuration's runtime folder.
#[derive(Debug)]
pub(super) struct LabMachine<'a> {
    config: &'a LabConfig,
}

fn named(what: &str, path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let text = format!("{what} {}", path.display());
    move |error| io::Error::new(error.kind(), format!("{text}: {error}"))
}

impl<'a> LabMachine<'a> {
    /// Makes the runtime folder, for this user only: whoever can connect can run commands as root in the lab.
    pub(super) fn new(config: &'a LabConfig) -> io::Result<Self> {
        let dir = &config.runtime_dir;
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(named("runtime folder", dir))?;
        let meta = fs::symlink_metadata(dir)?;
        if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
            let dir = dir.display();
            return Err(io::Error::other(format!(
                "{dir} must be a folder of yours with mode 700; remove it or choose another"
            )));
        }
        Ok(Self { config })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.config.runtime_dir.join(name)
    }

    /// Opens one of the files that only serve as locks, or keep something beside.
    pub(super) fn lock_file(&self, name: &str) -> io::Result<File> {
        let path = self.file(name);
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(named("lock file", &path))
    }

    pub(super) fn socket(&self, port: usize) -> PathBuf {
        self.file(&format!("session.{port}.sock"))
    }

    pub(super) fn console_log(&self) -> PathBuf {
        self.file("console.log")
    }

    /// The lock that QEMU holds as long as it lives; None if it does.
    fn claim(&self) -> io::Result<Option<File>> {
        let alive = self.lock_file("alive")?;
        match alive.try_lock() {
            Ok(()) => Ok(Some(alive)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(super) fn is_running(&self) -> io::Result<bool> {
        let _start = self.start_lock()?;
        Ok(self.claim()?.is_none())
    }

    /// Whoever starts or stops the machine, or asks whether it runs, holds this.
    fn start_lock(&self) -> io::Result<File> {
        let lock = self.lock_file("start.lock")?;
        lock.lock()?;
        Ok(lock)
    }

    /// Starts the machine if it does not run.
    pub(super) fn ensure_running(&self) -> io::Result<Running> {
        let _start = self.start_lock()?;
        let wanted = self.fingerprint()?;
        let alive = match self.claim()? {
            Some(alive) => alive,
            None if fs::read_to_string(self.file("machine")).is_ok_and(|running| running == wanted) => {
                // It is for those who want to read it.
                let _ = self.shorten_log();
                return Ok(Running::Already);
            }
            None => self.replace()?,
        };
        self.start(alive, &wanted)?;
        Ok(Running::Started)
    }

    /// A machine of another make runs: end it, if nobody uses it but us, who hold one port.
    fn replace(&self) -> io::Result<File> {
        let mut others = 0;
        for port in 0..PORTS {
            let lock = self.lock_file(&format!("session.{port}.lock"))?;
            others += usize::from(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)));
        }
        if others > 1 {
            return Err(io::Error::other(
                "the running lab machine was made from other files or options, and it is in use; \
                 wait until its users are done, or choose another runtime folder",
            ));
        }
        self.end_process()?;
        self.claim()?.ok_or_else(|| io::Error::other("the old lab machine does not end"))
    }

    /// Everything that makes two machines different.
    fn fingerprint(&self) -> io::Result<String> {
        let config = self.config;
        let mut text = String::new();
        for path in [&config.qemu, &config.kernel, &config.initrd] {
            let meta = fs::metadata(path).map_err(named("the lab needs", path))?;
            let _ =
                writeln!(text, "{} {} {} {}", path.display(), meta.len(), meta.mtime(), meta.mtime_nsec());
        }
        let _ = writeln!(text, "{:?} {} {}", config.firmware, config.vcpus, config.memory_mib);
        let _ = writeln!(text, "{}", config.counted_time);
        let _ = writeln!(text, "{}", self.kernel_command_line());
        Ok(text)
    }

    fn kernel_command_line(&self) -> String {
        let idle = self.config.idle.as_secs();
        // Linux panics when it sees no timer interrupts in a time that it measures by the TSC, and on a busy host the
        // emulated timer may have none in it. What it says while it sleeps or wakes up is to be seen too.
        let own = format!(
            "console=ttyS0 quiet nmi_watchdog=0 no_timer_check no_console_suspend panic=-1 cryptomgr.notests \
             perfvisor.poweroff_idle={idle}"
        );
        format!("{own} {}", self.config.kernel_options).trim_end().to_owned()
    }

    fn start(&self, alive: File, fingerprint: &str) -> io::Result<()> {
        // The listening sockets are made here and inherited, so clients can connect at once and no start has to be
        // waited for. A dead machine's sockets are replaced.
        let mut inherited: Vec<OwnedFd> = Vec::with_capacity(PORTS + 1);
        for port in 0..PORTS {
            let path = self.socket(port);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(named("old socket", &path)(error));
                }
                _ => {}
            }
            inherited.push(private_listener(&path).map_err(named("socket", &path))?.into());
        }
        let listeners = inherited.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
        inherited.push(alive.into());
        // The last machine's may be what somebody still wants to read: how it ended.
        let _ = fs::rename(self.console_log(), self.file("console.log.old"));
        fs::write(self.console_log(), "")?;
        let log = File::create(self.file("qemu.log"))?;
        let mut command = Command::new(&self.config.qemu);
        command.args(self.arguments(&listeners));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir("/");
        let child = spawn_detached(command, inherited).map_err(named("cannot start", &self.config.qemu))?;
        fs::write(self.file("qemu.pid"), child.to_string())?;
        fs::write(self.file("machine"), fingerprint)
    }

    /// A long log begins anew, so that it has room for what comes last; what it had is kept beside it. QEMU appends to it.
    fn shorten_log(&self) -> io::Result<()> {
        let log = OpenOptions::new().write(true).open(self.console_log())?;
        if log.metadata()?.len() > FILE_MAX / 2 {
            fs::copy(self.console_log(), self.file("console.log.old"))?;
            log.set_len(0)?;
        }
        Ok(())
    }

    fn arguments(&self, listeners: &[i32]) -> Vec<OsString> {
        let config = self.config;
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
        add(&["-name", "perfvisor-lab", "-M", "pc", "-cpu", "max"]);
        if config.counted_time {
            add(&["-accel", "tcg,thread=single", "-icount", "shift=0"]);
        } else {
            add(&["-accel", "tcg,thread=multi"]);
        }
        add(&["-smp", &config.vcpus.to_string(), "-m", &format!("{}M", config.memory_mib)]);
        add(&["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"]);
        // The registers at each reset: of a machine that is lost, the only witness.
        add(&["-d", "cpu_reset", "-D", &self.file("resets.log").display().to_string()]);
        add(&["-append", &self.kernel_command_line()]);
        add(&["-device", &format!("virtio-serial-pci,max_ports={}", 2 * PORTS)]);
        for (port, listener) in listeners.iter().enumerate() {
            add(&["-chardev", &format!("socket,id=s{port},fd={listener},server=on,wait=off")]);
            add(&["-device", &format!("virtserialport,chardev=s{port},name=perfvisor.session.{port}")]);
        }
        for folder in &config.firmware {
            arguments.extend(["-L".into(), folder.into()]);
        }
        // A comma is written twice in QEMU's options.
        let log = self.console_log().into_os_string().into_vec();
        let log = log.split(|byte| *byte == b',').collect::<Vec<_>>().join(&b",,"[..]);
        let mut console = OsString::from("file,id=console,append=on,path=");
        console.push(OsString::from_vec(log));
        arguments.extend(["-chardev".into(), console, "-serial".into(), "chardev:console".into()]);
        arguments.extend([
            "-kernel".into(),
            (&config.kernel).into(),
            "-initrd".into(),
            (&config.initrd).into(),
        ]);
        arguments
    }

    /// Ends the machine, if it runs.
    pub(super) fn stop(&self) -> io::Result<()> {
        let _start = self.start_lock()?;
        if self.claim()?.is_none() {
            self.end_process()?;
        }
        Ok(())
    }

    /// The process that holds the lock on `alive`. The start lock must be held.
    fn process(&self) -> io::Result<OwnedFd> {
        let path = self.file("qemu.pid");
        let text = fs::read_to_string(&path).map_err(named("process id of the lab machine", &path))?;
        let pid = text.parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other(format!("{}: not a process id", path.display())))?;
        Ok(pidfd_open(pid, PidfdFlags::empty())?)
    }

    fn end_process(&self) -> io::Result<()> {
        let process = match self.process() {
            Ok(process) => process,
            // It ended while we looked.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for signal in [Signal::TERM, Signal::KILL] {
            let _ = pidfd_send_signal(&process, signal);
            if ended(&process)? {
                return Ok(());
            }
        }
        Err(io::Error::other("the lab machine's process does not end, not even by SIGKILL"))
    }

    /// Waits for the end of a machine that hung up.
    pub(super) fn await_end(&self) -> io::Result<()> {
        let process = {
            let _start = self.start_lock()?;
            if self.claim()?.is_some() {
                return Ok(());
            }
            self.process()
        };
        match process {
            Ok(process) if !ended(&process)? => Err(self.failure("the lab machine hung up but does not end")),
            // Any error: there is no such process any more.
            _ => Ok(()),
        }
    }

    /// An error with the last words of the machine.
    pub(super) fn failure(&self, what: &str) -> io::Error {
        let mut text = what.to_owned();
        for log in [self.file("qemu.log"), self.console_log()] {
            let content = fs::read(&log).unwrap_or_default();
            let content = String::from_utf8_lossy(&content);
            let lines: Vec<_> = content.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
            if !lines.is_empty() {
                let _ = write!(text, "\n{} ends with:", log.display());
            }
            for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
                let _ = write!(text, "\n  {}", line.replace('\x1b', ""));
            }
        }
        io::Error::other(text)
    }
}

fn ended(process: &OwnedFd) -> io::Result<bool> {
    let timeout = Timespec { tv_sec: END_PATIENCE.as_secs() as i64, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout))? > 0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_long_log_begins_anew_under_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let config = LabConfig {
            qemu: PathBuf::new(),
            firmware: Vec::new(),
            kernel: PathBuf::new(),
            initrd: PathBuf::new(),
            runtime_dir: folder.path().join("lab"),
            vcpus: 1,
            memory_mib: 1,
            counted_time: false,
            kernel_options: String::new(),
            idle: Duration::ZERO,
            start_timeout: Duration::ZERO,
        };
        let machine = LabMachine::new(&config).unwrap();
        let mut writer = OpenOptions::new().append(true).create(true).open(machine.console_log()).unwrap();
        let old = machine.file("console.log.old");
        writer.write_all(b"short").unwrap();
        machine.shorten_log().unwrap();
        assert!(!old.exists() && fs::read(machine.console_log()).unwrap() == b"short");
        writer.set_len(FILE_MAX / 2 + 1).unwrap();
        machine.shorten_log().unwrap();
        writer.write_all(b"anew").unwrap();
        assert_eq!(fs::read(machine.console_log()).unwrap(), b"anew");
        assert_eq!(fs::metadata(old).unwrap().len(), FILE_MAX / 2 + 1);
    }
}
