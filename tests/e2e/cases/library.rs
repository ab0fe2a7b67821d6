//! `libvperfctr` as programs use it: its examples, in C linked in each way there is, and in Rust. What they do without
//! the driver is a test of the library's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::workload::INSTRUCTIONS_PER_ITERATION;

use crate::answers::{self, Answers};
use crate::case::{Case, Evidence, Setting, Test, nothing_asked};

pub(crate) const CASE: Case =
    Case { name: "library", limit: Duration::from_secs(120), guest, answer: nothing_asked, tests };

const SHORT: &str = "000000123456";
const LONGER: &str = "000001123456";
const MORE_ITERATIONS: u64 = 1_000_000;

/// The examples that are run, by the names they have in the guest, and with their arguments. Those in C have the way they
/// are linked in their names: with the shared library, with the other one, and with nothing shared at all.
const EXAMPLES: [(&str, &str); 9] = [
    ("c-self_monitoring-shared", ""),
    ("c-self_monitoring-archive", ""),
    ("c-self_monitoring-static", ""),
    ("c-overflow-shared", "0x5100C0 100000"),
    ("c-samples-shared", ""),
    ("c-other_process-shared", "spin"),
    ("rust-self_monitoring", ""),
    ("rust-overflow", "5100C0 100000"),
    ("rust-other_process", "$pid 1"),
];

/// Builds the libraries as the C library's front page says, and the examples. What they are to be called in the guest.
pub(crate) fn programs() -> Result<Vec<(PathBuf, String)>> {
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/libvperfctr");
    // The folder of the library's own test of them, which is a step before.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    let mut cargo = cargo("rustc", &libraries);
    cargo.args(["--package=libvperfctr-c", "--crate-type=cdylib,staticlib"]);
    cargo.arg("--target-dir").arg(&folder).args(["--", "-Clink-arg=-Wl,-soname,libvperfctr.so.0"]);
    cargo.env("RUSTFLAGS", "-Ctarget-feature=-crt-static").env_remove("CARGO_ENCODED_RUSTFLAGS");
    succeed(&mut cargo)?;
    let built = folder.join("x86_64-unknown-linux-gnu/debug");
    // As it would be installed.
    strip(&built.join("libvperfctr.so"), &built.join("libvperfctr.so.0"))?;
    succeed(self::cargo("build", &libraries).args(["--package=libvperfctr", "--examples"]))?;

    let rust = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("debug").join("examples");
    let mut programs = Vec::new();
    for (name, _) in EXAMPLES {
        let mut words = name.split('-');
        let (language, example, way) = (words.next(), words.next().unwrap_or_default(), words.next());
        let program = match (language, way) {
            (Some("c"), Some(way)) => compile(&libraries, example, way, &built)?,
            _ => {
                let program = built.join(name);
                strip(&rust.join(example), &program)?;
                program
            }
        };
        programs.push((program, format!("/bin/{name}")));
    }
    Ok(programs)
}

fn cargo(command: &str, folder: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([command, "--quiet", "--locked"]).current_dir(folder);
    cargo
}

/// Copies what is debugged nowhere: all of it has to fit into a guest's memory.
fn strip(from: &Path, to: &Path) -> Result<()> {
    succeed(Command::new("strip").arg("-o").args([to, from]))
}

fn compile(libraries: &Path, example: &str, way: &str, built: &Path) -> Result<PathBuf> {
    let program = built.join(format!("{example}-{way}"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O1", "-s", "-I"]).arg(libraries.join("include"));
    gcc.arg(libraries.join(format!("capi/examples/{example}.c"))).arg("-o").arg(&program);
    let archive = built.join("libvperfctr.a");
    match way {
        "shared" => gcc.args(["-L.", "-lvperfctr", "-Wl,-rpath,$ORIGIN"]),
        "archive" => gcc.arg(archive).arg("-lgcc_s"),
        _ => gcc.arg("-static").arg(archive).arg("-lgcc_eh"),
    };
    succeed(gcc.current_dir(built))?;
    Ok(program)
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn guest(_: &Setting) -> String {
    answers::script(EXAMPLES.into_iter().map(|(name, arguments)| {
        let line = match arguments {
            "spin" => format!("{name} spin {SHORT} && {name} spin {LONGER}"),
            "$pid 1" => format!(
                "spin --seconds 3600 & pid=$!\n{name} {arguments}; status=$?; kill $pid; wait $pid; (exit $status)"
            ),
            _ => format!("{name} {arguments}"),
        };
        (name, line)
    }))
}

fn tests() -> Vec<Test> {
    EXAMPLES
        .into_iter()
        .map(|(name, _)| Test {
            name: name.replace('_', "-"),
            check: Box::new(move |evidence| check(evidence, name)),
        })
        .collect()
}

fn check(evidence: &Evidence, name: &'static str) -> Result<()> {
    let said = Answers::of(evidence)?.said(name, 0)?;
    let lines: Vec<&str> = said.lines().collect();
    let verdict = match name.split('-').collect::<Vec<_>>()[..] {
        ["c", "self_monitoring", _] => {
            ensure!(lines.first().is_some_and(|line| line.starts_with("AMD ")), "{said}");
            grows(evidence, &lines, Some(1_000_000 * INSTRUCTIONS_PER_ITERATION))
        }
        ["rust", "self_monitoring"] => grows(evidence, &lines, None),
        ["c", "overflow", _] => says(&lines, "10 overflows, the last near 0x"),
        ["rust", "overflow"] => {
            ensure!(lines.iter().filter(|line| line.starts_with("sample ")).count() >= 10, "{said}");
            says(&lines, "10 overflow signals")
        }
        ["c", "samples", _] => samples(&lines),
        ["c", "other_process", _] => {
            let counts = counts(&lines)?;
            let [few, many] = counts[..] else { anyhow::bail!("{counts:?}") };
            let more = many.checked_sub(few);
            ensure!(more == Some(MORE_ITERATIONS * INSTRUCTIONS_PER_ITERATION), "{counts:?}");
            Ok(())
        }
        _ => {
            let counts = counts(&lines)?;
            ensure!(counts.len() == 1 && counts[0] > MORE_ITERATIONS, "{counts:?}");
            Ok(())
        }
    };
    verdict.with_context(|| format!("it said\n{said}"))
}

fn says(lines: &[&str], start: &str) -> Result<()> {
    ensure!(lines.last().is_some_and(|line| line.starts_with(start)), "it does not end with '{start}'");
    Ok(())
}

/// The numbers before " events".
fn counts(lines: &[&str]) -> Result<Vec<u64>> {
    let numbers = lines.iter().filter_map(|line| line.split_once(" events")?.0.split(' ').next_back());
    numbers.map(|number| number.parse().with_context(|| format!("'{number}' events"))).collect()
}

/// Of one, two and three million iterations, each line's is one step more than the one before.
fn grows(evidence: &Evidence, lines: &[&str], step: Option<u64>) -> Result<()> {
    let counts = counts(lines)?;
    let [one, two, three] = counts[..] else { anyhow::bail!("{counts:?}") };
    let (first, second) = (two.checked_sub(one), three.checked_sub(two));
    let (Some(first), Some(second)) = (first, second) else { anyhow::bail!("{counts:?}") };
    // A reading without a call that a switch came between is repeated, which is counted as well: 521 instructions each time
    // without the optimizer. On a busy host a guest that gets the CPU back has many switches to catch up with.
    let repeated = if evidence.setting.source == "kvm" { 20_000 } else { 0 };
    ensure!(first.abs_diff(second) <= repeated, "steps of {first} and {second}");
    ensure!(step.is_none_or(|step| first.abs_diff(step) <= repeated), "a step of {first}, expected {step:?}");
    ensure!(first > 1_000_000, "a step of {first}");
    Ok(())
}

/// `  1: pc 0x.., tsc .., cpu ..` and so on, then how many there were.
fn samples(lines: &[&str]) -> Result<()> {
    let [samples @ .., last] = lines else { anyhow::bail!("nothing") };
    let words: Vec<&str> = last.split_whitespace().collect();
    let [number, "samples,", lost, "lost"] = words[..] else { anyhow::bail!("'{last}'") };
    let (number, lost): (usize, usize) = (number.parse()?, lost.parse()?);
    ensure!(
        number == samples.len() && number > 50 && number <= 128,
        "{number} samples, {} lines",
        samples.len()
    );
    ensure!(lost == 0 || number == 128, "{lost} lost of {number}");
    ensure!(samples.iter().all(|line| line.contains(": pc 0x")), "samples without a place");
    Ok(())
}
