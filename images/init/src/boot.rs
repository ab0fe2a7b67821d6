//! From the bare kernel to a system that can run commands.
//!
//! Nothing here is fatal: a machine that lacks something can still tell about it through a session.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;

use rustix::mount::{MountFlags, mount};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::modules;
use crate::options::Options;

/// Brings the system up and returns the kernel command line's wishes.
pub fn bring_up() -> Options {
    mount_all();
    if let Err(error) = use_console() {
        eprintln!("perfvisor-init: /dev/console: {error}");
    }
    let (options, complaints) = Options::parse(&fs::read_to_string("/proc/cmdline").unwrap_or_default());
    for complaint in complaints {
        eprintln!("perfvisor-init: kernel command line: {complaint}");
    }
    let hostname = options.hostname.as_deref().unwrap_or("perfvisor");
    report("hostname", rustix::system::sethostname(hostname.as_bytes()).map_err(Into::into));
    if !options.panic_given {
        // A machine that is beyond help restarts at once, which ends it where its VMM does not restart machines.
        report("kernel.panic", fs::write("/proc/sys/kernel/panic", "-1"));
    }
    report("kernel.panic_on_oops", fs::write("/proc/sys/kernel/panic_on_oops", "1"));
    report("loopback", loopback_up());
    modules::load_listed();
    options
}

fn report(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("perfvisor-init: {what}: {error}");
    }
}

fn mount_all() {
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    let quiet = safe | MountFlags::NOEXEC;
    for (kind, target, flags, data) in [
        ("proc", "/proc", quiet, None),
        ("sysfs", "/sys", quiet, None),
        ("devtmpfs", "/dev", MountFlags::NOSUID | MountFlags::NOEXEC, None),
        ("devpts", "/dev/pts", MountFlags::NOSUID | MountFlags::NOEXEC, Some(c"mode=620,ptmxmode=666")),
        ("tmpfs", "/dev/shm", safe, Some(c"mode=1777")),
        ("tmpfs", "/tmp", safe, Some(c"mode=1777")),
        ("tmpfs", "/run", safe, Some(c"mode=755")),
    ] {
        report(target, fs::create_dir_all(target).and_then(|()| Ok(mount(kind, target, kind, flags, data)?)));
    }
    report(
        "/root",
        fs::create_dir_all("/root")
            .and_then(|()| fs::set_permissions("/root", PermissionsExt::from_mode(0o700))),
    );
    // Shells' process substitution and many scripts want these.
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "fd/0"),
        ("/dev/stdout", "fd/1"),
        ("/dev/stderr", "fd/2"),
    ] {
        let _ = std::os::unix::fs::symlink(target, link);
    }
}

/// An initramfs without a console node gives PID 1 no open files at all; the node is there once /dev is mounted. A
/// console that cannot be written to (a serial port without its interrupt: EIO) must not be the end of PID 1, whose
/// every word there would be a panic.
fn use_console() -> io::Result<()> {
    let console = OpenOptions::new().read(true).write(true).open("/dev/console")?;
    dup2_stdin(&console)?;
    let output = match rustix::io::write(&console, b"") {
        Ok(_) => console,
        Err(_) => OpenOptions::new().write(true).open("/dev/kmsg")?,
    };
    dup2_stdout(&output)?;
    Ok(dup2_stderr(&output)?)
}

/// Sets IFF_UP on interface 1, which is always the loopback, by an RTM_NEWLINK message.
fn loopback_up() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const IFF_UP: u32 = 1;
    let mut message = Vec::with_capacity(32);
    message.extend(32u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]); // sequence number and port
    message.extend([0; 4]); // family, padding, device type
    message.extend(1i32.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes()); // the flags to change
    // Protocol 0 of netlink is routing.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    Ok(())
}
