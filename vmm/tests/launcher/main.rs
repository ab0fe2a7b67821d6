//! The lab machine and its launcher, for real: a machine of its own, beside the one that users of the lab share.
//!
//! Made by `cargo xtask setup`; run by `cargo test -p perfvisor --test launcher`, which `cargo xtask test` does.
//!
//! A client is this binary again, because a session is joined to the standard streams of its process.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use images::layout::Layout;
use libtest_mimic::{Arguments, Failed, Trial};
use perfvisor::guest_session::{self, CopiedFile, Terminal};
use perfvisor::lab::{self, LabConfig};

/// Set for clients; the runtime folder.
const CLIENT: &str = "PERFVISOR_TEST_CLIENT";

/// For clients; `HOST=INSIDE`.
const COPY: &str = "PERFVISOR_TEST_COPY";

/// For clients; added to the machine's kernel command line.
const OPTIONS: &str = "PERFVISOR_TEST_OPTIONS";

/// The idle power-off of the machines here.
const IDLE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    if let Some(dir) = std::env::var_os(CLIENT) {
        return client(dir.into());
    }
    let arguments = Arguments::from_args();
    libtest_mimic::run(
        &arguments,
        vec![
            Trial::test("sessions", || on_fresh_lab(sessions)),
            Trial::test("failures", || on_fresh_lab(failures)),
        ],
    )
    .exit_code()
}

fn config(runtime_dir: PathBuf) -> anyhow::Result<LabConfig> {
    let layout = Layout::open()?;
    let image = layout.lab().with_context(|| format!("the lab machine is not there; {}", layout.remedy()))?;
    let replaced = |name: &str, path: PathBuf| {
        std::env::var_os(format!("PERFVISOR_TEST_{name}")).map_or(path, PathBuf::from)
    };
    let (qemu, kernel) = (replaced("QEMU", image.qemu), replaced("KERNEL", image.kernel));
    let mut config = LabConfig::new(qemu, kernel, image.initramfs, runtime_dir);
    config.firmware = image.firmware;
    config.idle = IDLE;
    config.memory_mib = 1024;
    config.kernel_options = std::env::var(OPTIONS).unwrap_or_default();
    Ok(config)
}

fn client(runtime_dir: PathBuf) -> ExitCode {
    let files = std::env::var(COPY).ok().and_then(|copy| {
        let (host, inside) = copy.split_once('=')?;
        Some(CopiedFile { host: host.into(), inside: inside.into() })
    });
    let command = guest_session::Command {
        argv: std::env::args_os().skip(1).collect::<Vec<OsString>>(),
        terminal: Terminal::Auto,
        files: files.into_iter().collect(),
        ..guest_session::Command::default()
    };
    let mut config = match config(runtime_dir) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    };
    config.start_timeout = Duration::from_secs(60);
    lab::run(&config, command).unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::from(125)
    })
}

struct Lab(PathBuf);

impl Lab {
    fn command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command.env(CLIENT, &self.0).args(argv).stdin(Stdio::null());
        command
    }

    fn run(&self, script: &str) -> Output {
        self.command(&["sh", "-c", script]).output().expect("a client")
    }

    fn start(&self, script: &str) -> Client {
        let mut command = self.command(&["sh", "-c", script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a client");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Client { child, stdout }
    }

    fn config(&self) -> LabConfig {
        config(self.0.clone()).expect("the lab machine is set up")
    }
}

struct Client {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Client {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
    }

    fn code(mut self) -> Option<i32> {
        self.child.wait().expect("wait").code()
    }
}

fn on_fresh_lab(test: fn(&Lab)) -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let lab = Arc::new(Lab(dir.path().join("lab")));
    let result = std::panic::catch_unwind({
        let lab = Arc::clone(&lab);
        move || test(&lab)
    });
    lab::stop(&lab.config())?;
    result.map_err(|_| {
        let log = std::fs::read_to_string(lab.0.join("console.log")).unwrap_or_default();
        format!("console: {log}").into()
    })
}

fn timed<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = act();
    println!("{what}: {:.2} s", begun.elapsed().as_secs_f64());
    result
}

/// A command whose caller has a pipe open beside its standard streams, as shells leave one.
fn run_with_a_pipe_open(lab: &Lab, script: &str) -> Output {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let client = lab.command(&["sh", "-c", script]);
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "exec 9<&0 0</dev/null; exec \"$@\"", "sh"])
        .arg(client.get_program())
        .args(client.get_args());
    let output = shell.env(CLIENT, &lab.0).stdin(writer).output().expect("a client");
    // The machine was made by this client, and does not have the pipe.
    drop(shell);
    let mut nothing = Vec::new();
    reader.read_to_end(&mut nothing).expect("the end of the pipe");
    assert!(lab::is_running(&lab.config()).expect("lock"), "the pipe ended with the machine");
    let pid = std::fs::read_to_string(lab.0.join("qemu.pid")).expect("its process id");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    let links: Vec<_> = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).collect();
    println!("the machine has open: {links:?}");
    assert!(
        !links.iter().any(|link| link.starts_with("/dev/tty") || link.starts_with("/dev/pts")),
        "{links:?}"
    );
    output
}

fn sessions(lab: &Lab) {
    let output = timed("first command, with the machine's start", || {
        run_with_a_pipe_open(lab, "echo out; echo err >&2; exit 7")
    });
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    let output = timed("second command", || lab.run("kill -9 $$"));
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(lab.command(&["nonesuch"]).output().expect("a client").status.code(), Some(127));
    assert_eq!(lab.command(&["/tmp"]).output().expect("a client").status.code(), Some(126));

    timed("20 commands, one at once after the other", || {
        for number in 0..20 {
            assert_eq!(lab.run(&format!("exit {number}")).status.code(), Some(number));
        }
    });
    ten_megabytes(lab);
    files(lab);
    several(lab);
    killed_client(lab);

    timed("power-off after the last session", || {
        let deadline = Instant::now() + IDLE + Duration::from_secs(20);
        while lab::is_running(&lab.config()).expect("lock") {
            assert!(Instant::now() < deadline, "the idle machine does not power off");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let output = timed("a command after that", || lab.run("echo again"));
    assert_eq!(output.stdout, b"again\n");
}

fn ten_megabytes(lab: &Lab) {
    let input: Vec<u8> =
        (0..10_000_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut client = lab.start("cat");
    let mut stdin = client.child.stdin.take().expect("piped");
    let output = timed("10 MB through cat", || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stdin.write_all(&input).expect("cat reads");
                drop(stdin);
            });
            let mut output = Vec::new();
            client.stdout.read_to_end(&mut output).expect("cat writes");
            output
        })
    });
    assert!(output == input, "{} bytes came back", output.len());
    assert_eq!(client.code(), Some(0));

    // The same from a regular file, which epoll does not take.
    let file = lab.0.join("input");
    std::fs::write(&file, &input).expect("a file");
    let mut command = lab.command(&["sh", "-c", "wc -c"]);
    command.stdin(std::fs::File::open(&file).expect("the file"));
    let output = timed("10 MB from a file", || command.output().expect("a client"));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "10000000");
    let output = timed("10 MB of output", || lab.run("head -c 10000000 /dev/zero"));
    assert_eq!(output.stdout.len(), 10_000_000);
    // A reader that goes away: head's SIGPIPE reaches the program inside.
    let mut client = lab.start("yes; echo $? >&2");
    client.line();
    drop(client.stdout);
    assert_eq!(client.child.wait().expect("wait").code(), Some(0));
}

fn files(lab: &Lab) {
    let exe = std::env::current_exe().expect("our own path");
    let size = std::fs::metadata(&exe).expect("size").len();
    for what in ["sending", "not sending"] {
        let mut command = lab.command(&["wc", "-c", "/opt/tool"]);
        let output = timed(&format!("{what} a file of {} MB", size >> 20), || {
            command.env(COPY, format!("{}=/opt/tool", exe.display())).output().expect("a client")
        });
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("{size} /opt/tool"));
    }
}

fn several(lab: &Lab) {
    let mut one = lab.start("trap 'echo interrupted; exit 3' INT; echo one; while :; do sleep 0.1; done");
    // Nothing that ends with its input, which waiting for it closes.
    let mut two = lab.start("echo two; sleep 1000");
    assert_eq!((one.line(), two.line()), ("one\n".into(), "two\n".into()));
    one.signal("-INT");
    assert_eq!((one.line(), one.code()), ("interrupted\n".into(), Some(3)));
    two.signal("-TERM");
    assert_eq!(two.code(), Some(143));
    let many: Vec<_> = (0..lab::PORTS).map(|number| lab.start(&format!("echo {number}; cat"))).collect();
    let many: Vec<_> = many.into_iter().map(|mut client| (client.line(), client)).collect();
    let refused = lab.run("true");
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use"), "{refused:?}");
    for (number, (line, client)) in many.into_iter().enumerate() {
        assert_eq!((line, client.code()), (format!("{number}\n"), Some(0)), "the end of input ends cat");
    }
}

fn killed_client(lab: &Lab) {
    let mut client = lab.start("echo $$; yes");
    let pid = client.line().trim().to_owned();
    client.signal("-KILL");
    client.child.wait().expect("wait");
    let output = timed("a command after a killed client", || {
        lab.run(&format!("sleep 0.2; ls /proc/{pid}/stat; echo fresh"))
    });
    assert_eq!(output.stdout, b"fresh\n", "{output:?}");
}

fn failures(lab: &Lab) {
    let mut command = lab.command(&["true"]);
    let output = timed("a machine that cannot boot", || {
        command.env(OPTIONS, "rdinit=/nothing root=/nothing").output().expect("a client")
    });
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(text.contains("console.log") && text.contains("Kernel panic"), "{text}");

    let mut command = lab.command(&["true"]);
    let output = command.env("PERFVISOR_TEST_QEMU", "/bin/false").output().expect("a client");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let mut command = lab.command(&["true"]);
    let output = command.env("PERFVISOR_TEST_KERNEL", "/nothing").output().expect("a client");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nothing"), "{output:?}");
    assert!(Path::new(&lab.0).is_dir());
}
