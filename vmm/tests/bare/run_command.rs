//! `perfvisor run` of a test kernel, on this host whatever its KVM's speed.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use images::process::Guarded;
use libtest_mimic::Trial;

use crate::kernel::Step;
use crate::test_kernels::write;
use crate::trial::trial;

struct Case {
    folder: tempfile::TempDir,
}

impl Case {
    fn new(script: &[Step]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("test.elf"), script);
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Without a PMU, which this host need not have.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perfvisor"));
        command.env("XDG_RUNTIME_DIR", self.folder.path()).current_dir(self.folder.path());
        command.args(["run", "--pmu", "none", "--memory", "64M", "--kernel", "test.elf"]);
        command
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command().args(more).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Says its command line and its first module, of twelve bytes.
fn talkative(last: Step) -> Vec<Step> {
    let follow = |offset| [Step::Start, Step::Add(offset), Step::Follow];
    let mut script = follow(16).to_vec();
    script.push(Step::Text);
    script.extend(follow(24));
    script.extend([Step::Follow, Step::Bytes(12), last]);
    script
}

fn exit(code: u32) -> Step {
    Step::Out(0xF4, 4, code)
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("run_command_words_module_output_and_status", words_module_output_and_status),
        trial("run_command_ends", ends),
        trial("run_command_refusals", refusals),
        trial("run_command_console_and_report", console_and_report),
        trial("run_command_dump_and_signal", signal),
        trial("run_command_output_is_whole_or_an_error", whole_or_an_error),
    ]
}

fn words_module_output_and_status() {
    let case = Case::new(&talkative(exit(21)));
    std::fs::write(case.path("file"), "twelve bytes and more").unwrap();
    for option in [["--module", "file,its words"], ["--initrd", "file"]] {
        let ended = case.run(&[&["--append", "some words"], &option[..]].concat());
        assert_eq!(text(&ended.stderr), "");
        assert_eq!(text(&ended.stdout), "test.elf some words\0twelve bytes");
        assert_eq!(ended.status.code(), Some(43));
    }
}

fn ends() {
    for (last, status, word) in [
        (Step::Out(0x600, 1, 0x34), 0, ""),
        (Step::Die, 125, "triple fault"),
        (Step::Out(0x64, 1, 0xFE), 125, "reset"),
        (exit(0), 1, ""),
    ] {
        let ended = Case::new(&[last]).run(&[]);
        let errors = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{last:?}: {errors}");
        assert!(errors.contains(word) && (errors.is_empty() == word.is_empty()), "{last:?}: {errors}");
    }
}

fn refusals() {
    let case = Case::new(&[exit(0)]);
    std::fs::write(case.path("text"), "not a kernel").unwrap();
    for (words, reason) in [
        (&["--", "ls"][..], "--append"),
        (&["--copy", "text"], "--module"),
        (&["--tty"], "--console"),
        (&["--module", "/nowhere/file"], "/nowhere/file"),
        (&["--module", "."], "regular file"),
    ] {
        let ended = case.run(words);
        let errors = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {errors}");
        assert!(errors.contains(reason), "{words:?}: {errors}");
    }
    std::fs::rename(case.path("text"), case.path("test.elf")).unwrap();
    let errors = text(&case.run(&[]).stderr);
    assert!(
        errors.contains("test.elf") && errors.contains("PVH") && errors.contains("multiboot"),
        "{errors}"
    );
}

fn console_and_report() {
    let case = Case::new(&talkative(exit(0)));
    std::fs::write(case.path("file"), "twelve bytes").unwrap();
    let ended =
        case.run(&["--module", "file", "--console", "said", "--report", "report.json", "--name", "one"]);
    assert_eq!(
        (ended.status.code(), text(&ended.stdout)),
        (Some(1), String::new()),
        "{}",
        text(&ended.stderr)
    );
    assert_eq!(std::fs::read(case.path("said")).unwrap(), b"test.elf\0twelve bytes");
    let report = std::fs::read_to_string(case.path("report.json")).unwrap();
    assert!(report.contains("\"one\""), "{report}");
    let ended = case.run(&["--module", "file", "--console", "-"]);
    assert_eq!(
        (text(&ended.stdout), text(&ended.stderr)),
        (String::new(), "test.elf\0twelve bytes".to_owned())
    );
}

/// What the shell below gives its child as descriptor 9.
const INHERITED: &str = "/dev/zero";

/// While it runs it can be asked for what it counted; and it ends by one signal.
fn signal() {
    let case = Case::new(&[Step::Out(0x3F8, 1, b'x'.into()), Step::Spin]);
    let run = case.command();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("exec \"$@\" 9<{INHERITED}")).arg("sh").arg(run.get_program());
    shell.args(run.get_args()).args(["--console", "said", "--name", "spins"]);
    shell.current_dir(case.folder.path()).env("XDG_RUNTIME_DIR", case.folder.path());
    let mut child = Guarded::spawn(&mut shell).unwrap();
    let said = |path: &Path| std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !said(&case.path("said")) {
        assert!(Instant::now() < deadline, "the kernel says nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut dump = Command::new(env!("CARGO_BIN_EXE_perfvisor"));
    let dump = dump.env("XDG_RUNTIME_DIR", case.folder.path()).args(["dump", "spins"]).output().unwrap();
    assert!(dump.status.success() && text(&dump.stdout).contains("vCPU 0"), "{}", text(&dump.stderr));
    confined(child.0.id(), &dump.stdout);
    let pid = child.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.0.wait().unwrap().code(), Some(128 + 15));
}

/// Every thread of the machine, which has none of the test's descriptors.
fn confined(pid: u32, dump: &[u8]) {
    let mut names = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let file = |name| std::fs::read_to_string(task.as_ref().unwrap().path().join(name));
        // The thread that has answered the dump may not have ended yet, or ends meanwhile.
        let (Ok(name), Ok(status)) = (file("comm"), file("status")) else { continue };
        if name == "control\n" {
            continue;
        }
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
            assert!(status.lines().any(|found| found == line), "{line}: {status}");
        }
        names.push(name);
    }
    // A thread that some kernels make for KVM's own work.
    names.retain(|name| !name.starts_with("kvm-"));
    names.sort();
    assert_eq!(names, ["console\n", "perfvisor\n", "vcpu0\n"]);
    assert!(text(dump).contains("confined   no new privileges, no capabilities"), "{}", text(dump));
    for descriptor in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let is = std::fs::read_link(descriptor.unwrap().path()).unwrap();
        assert_ne!(is, Path::new(INHERITED));
    }
}

fn whole_or_an_error() {
    let case = Case::new(&[Step::At(0x100_0000), Step::Bytes(0x4000), exit(0)]);
    // More than this pipe takes: the rest waits for its reader, after the kernel's end, and longer than a console's would.
    let mut child = case.command().stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, 0x1000).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let mut output = Vec::new();
    std::io::Read::read_to_end(&mut pipe, &mut output).unwrap();
    assert_eq!((child.wait().unwrap().code(), output.len()), (Some(1), 0x4000));

    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = case.command().stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(ended.status.code(), Some(125));
    assert!(text(&ended.stderr).contains("output"), "{}", text(&ended.stderr));
}
