//! The host's kernel module: by itself, and who else has the counters.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use images::layout::Layout;
use images::process::{Guarded, Program};
use images::series::DEFAULT;
use tempfile::TempDir;
use tests::counts;
use tests::event::INSTRUCTIONS;
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION};

use super::test_kernel;
use crate::dump::Dump;
use crate::perfvisor::{self, BOOT_LIMIT, COMMAND_LIMIT, Ended, FAILED, RUN_FAILED};

/// `tests/lab/module`, compiled.
pub(super) fn program(folder: &TempDir) -> Result<Vec<u8>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = repository.join("tests/lab/module");
    let files = fs::read_dir(&sources)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let program = folder.path().join("module");
    let compiler = Command::new("cc")
        .args(["-O1", "-static", "-pthread", "-I"])
        .arg(repository.join("vpmu/host-module"))
        .arg("-o")
        .arg(&program)
        .args(files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "c")))
        .status()
        .context("cannot run cc")?;
    ensure!(compiler.success(), "{} does not compile", sources.display());
    Ok(fs::read(&program)?)
}

/// Takes the program from standard input and runs it with these words.
fn script(words: &str) -> String {
    format!("cat > /tmp/module.$$ && chmod +x /tmp/module.$$ && /tmp/module.$$ {words}")
}

/// All but what the next does; with a sleep that fails at its last step.
pub(super) fn by_itself() -> Result<()> {
    passes("")
}

/// The lab machine sleeps (ACPI S3) while the module counts.
pub(super) fn across_sleep() -> Result<()> {
    passes("sleep-s3 global-sleep-s3")
}

/// Each of the program's lines is one comparison for equality.
fn passes(parts: &str) -> Result<()> {
    let program = program(&tempfile::tempdir()?)?;
    let ended = perfvisor::run(["lab", "exec", "--", "sh", "-c", &script(parts)], &program, BOOT_LIMIT)?;
    all_ok(&String::from_utf8_lossy(&ended.stdout)).with_context(|| ended.stderr.clone())?;
    ended.expect_status(0)
}

fn all_ok(said: &str) -> Result<()> {
    let (ok, others): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("ok "));
    ensure!(others.is_empty(), "{} checks passed, but:\n{}", ok.len(), others.join("\n"));
    ensure!(!ok.is_empty(), "nothing was checked");
    Ok(())
}

/// `perfvisor ARGUMENTS`, while `who` has the counters.
fn during(who: &str, arguments: &[&str]) -> Result<Ended> {
    let program = program(&tempfile::tempdir()?)?;
    let mut holder = perfvisor::command(["lab", "exec", "--", "sh", "-c", &script(who)])?;
    let mut holder = Guarded::spawn(holder.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    let (stdin, stdout) = (holder.0.stdin.take(), holder.0.stdout.take());
    std::io::Write::write_all(&mut stdin.context("no pipe")?, &program)?;
    let mut line = String::new();
    BufReader::new(stdout.context("no pipe")?).read_line(&mut line)?;
    ensure!(line == "held\n", "the holder said '{line}'");
    perfvisor::run(arguments, b"", COMMAND_LIMIT)
}

/// A machine with this source, while `who` has the counters, and its final report.
fn beside(who: Option<&str>, source: &str) -> Result<(Ended, Result<Dump>)> {
    let folder = tempfile::tempdir()?;
    let kernel = folder.path().join("test.bin");
    fs::write(&kernel, test_kernel::image())?;
    let kernel = kernel.display().to_string();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").display().to_string();
    let report = folder.path().join("report.json");
    let reported = report.display().to_string();
    let machine = ["run", "--pmu", "k8", "--kernel", &kernel, "--module", &module, "--report", &reported];
    // auto is what nobody need ask for.
    let arguments =
        if source == "auto" { machine.to_vec() } else { [&machine[..], &["--source", source]].concat() };
    let ended = match who {
        Some(who) => during(who, &arguments)?,
        None => perfvisor::run(&arguments, b"", COMMAND_LIMIT)?,
    };
    let report = perfvisor::written(&report).and_then(|json| Dump::parse(&json));
    Ok((ended, report))
}

/// One of the two has the counters; the other fails with a message that says who has them, and what to do.
pub(super) fn conflicts() -> Result<()> {
    let refused =
        |who, source, words: &[&str]| beside(Some(who), source)?.0.expect_refusal(RUN_FAILED, words);
    refused("hold-perf", "module", &["perf has", "module.", "pid"])?;
    refused("hold-module", "perf", &["perfctr_host has", "--source module"])?;
    for source in ["auto", "perf", "module"] {
        refused("hold-global", source, &["whole processors", "pid"])?;
    }
    for who in ["hold-module", "hold-global", "hold-perf"] {
        during(who, &["dump", "--host"])?.expect_refusal(FAILED, &["somebody else has", "pid"])?;
    }
    Ok(())
}

/// The module where it is there and free for it, else perf; and what was asked for.
pub(super) fn chosen() -> Result<()> {
    for (who, source, by) in [
        (None, "auto", "module"),
        (None, "perf", "perf"),
        (Some("hold-module"), "auto", "module"),
        (Some("hold-module"), "module", "module"),
        (Some("hold-perf"), "auto", "perf"),
        (Some("hold-perf"), "perf", "perf"),
    ] {
        let (ended, report) = beside(who, source)?;
        let report = report.with_context(|| format!("{source} beside {who:?}{ended}"))?;
        report.is_by(by).with_context(|| format!("{source} beside {who:?}"))?;
    }
    Ok(())
}

/// A machine that has not counted yet, by perf or by KVM's vPMU, does not lose the counters to the next one's module.
pub(super) fn late_first_count() -> Result<()> {
    const SCRIPT: &str = "echo up; read line; perfex -e instructions:u true 2>&1";
    for source in ["perf", "kvm"] {
        let run =
            ["run", "--name", "test-late", "--kernel", "6.1", "--source", source, "--", "sh", "-c", SCRIPT];
        let mut late = Guarded::spawn(perfvisor::command(run)?.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let mut said = BufReader::new(late.0.stdout.take().context("no pipe")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        ensure!(line == "up\n", "--source {source}: it said '{line}'");

        let (ended, report) = beside(None, "auto")?;
        let report = report.with_context(|| format!("auto beside {source}{ended}"))?;
        report.is_by("perf").with_context(|| format!("auto beside {source}"))?;
        beside(None, "module")?.0.expect_refusal(RUN_FAILED, &["perf has", "perfvisor (pid"])?;

        drop(late.0.stdin.take());
        let mut counted = String::new();
        said.read_to_string(&mut counted)?;
        let status = late.wait(COMMAND_LIMIT)?;
        ensure!(status == Some(0), "--source {source}: ended with {status:?}: {counted}");
        let counts = counts::parse(&counted)?;
        let [counts] = &counts[..] else { anyhow::bail!("--source {source}: it printed {counted}") };
        ensure!(counts.of(INSTRUCTIONS)? > 1_000, "--source {source}: {counts:?}");
    }
    Ok(())
}

/// What a loop of two instructions on CPU 1 counts there, one of which is a branch; the module's own test compares whole
/// processors' counts for equality.
pub(super) fn global() -> Result<()> {
    const DUMP: [&str; 10] = [
        "dump",
        "--host",
        "--cpus",
        "0-1",
        "--event",
        "instructions:u",
        "--event",
        "branches:u",
        "--format",
        "json",
    ];
    let ended = during("busy", &DUMP)?;
    ended.expect_status(0)?;
    let dump: serde_json::Value = serde_json::from_slice(&ended.stdout)?;
    let count = |of: &serde_json::Value, event: usize| of["events"][event]["count"].as_u64();
    let busy = &dump["cpus"][1];
    let (instructions, branches) = (count(busy, 0).context("no count")?, count(busy, 1).context("no count")?);
    ensure!(instructions > 1_000_000, "{instructions} instructions of a busy CPU{ended}");
    ensure!(
        instructions.abs_diff(2 * branches) < instructions / 100,
        "{instructions} instructions, {branches} branches{ended}"
    );
    for event in 0..2 {
        let sum = count(&dump["cpus"][0], event).zip(count(busy, event)).map(|(idle, busy)| idle + busy);
        ensure!(
            sum.is_some() && dump["totals"][event]["count"].as_u64() == sum,
            "the total is not the sum{ended}"
        );
    }
    perfvisor::run(["dump", "--host", "--cpus", "7"], b"", COMMAND_LIMIT)?
        .expect_refusal(FAILED, &["no CPU 7"])
}

/// `tests/lab/entries`, built for the guests' default kernel.
fn entries(folder: &TempDir, layout: &Layout) -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/entries");
    for name in ["Kbuild", "entries.c"] {
        fs::copy(sources.join(name), folder.path().join(name)).with_context(|| name)?;
    }
    let make = Program::new("make").arg("-C").arg(layout.kdir(&DEFAULT)).arg("modules");
    let make = make.arg(format!("M={}", folder.path().display())).without_env("MAKEFLAGS");
    make.run().context("tests/lab/entries does not build")?;
    Ok(folder.path().join("entries.ko"))
}

/// The counters of an Intel processor, in a guest that has them: the lab has no other. There it is perfvisor's own PMU that
/// is programmed. Virtual CPUs are counted between entries and exits that a module stands in for; then whole processors,
/// where no guests are.
pub(super) fn intel() -> Result<()> {
    const SCRIPT: &str = "insmod /root/entries.ko && insmod /root/perfctr_host.ko || exit 1\n\
         module entries || exit 1\n\
         echo @; spin --seconds 3600 &\n\
         until pidof spin > /dev/null; do sleep 0.1; done\n\
         for part in all host guests; do\n\
             perfvisor dump --host --event instructions:u --event branches:u --of $part --format json || exit 1\n\
         done\n\
         kill -TERM $(pidof spin); wait\n\
         rmmod perfctr_host && rmmod entries";
    let (layout, folder) = (Layout::open()?, tempfile::tempdir()?);
    program(&folder)?;
    let module = layout.own_module(Layout::default_series(), "perfctr_host");
    let module = module.with_context(|| format!("the module is not there; {}", layout.remedy()))?;
    let copies = [
        format!("{}:/root/perfctr_host.ko", module.display()),
        format!("{}:/bin/perfvisor", perfvisor::program()?.display()),
        format!("{}:/bin/spin", env!("CARGO_BIN_EXE_spin")),
        format!("{}:/bin/module", folder.path().join("module").display()),
        format!("{}:/root/entries.ko", entries(&folder, &layout)?.display()),
    ];
    let mut arguments = vec!["run", "--pmu", "intel-v4", "--source", "perf", "--vcpus", "2"];
    copies.iter().for_each(|copy| arguments.extend(["--copy", copy]));
    arguments.extend(["--", "sh", "-c", SCRIPT]);
    let ended = perfvisor::run(arguments, b"", BOOT_LIMIT)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let (checks, dumps) = said.split_once("@\n").unwrap_or((&said, ""));
    all_ok(checks).with_context(|| ended.stderr.clone())?;
    ended.expect_status(0)?;
    let dumps = serde_json::Deserializer::from_str(dumps).into_iter();
    let dumps: Vec<serde_json::Value> = dumps.collect::<Result<_, _>>()?;
    ensure!(dumps.len() == 3, "{} dumps{ended}", dumps.len());
    for (dump, counts) in dumps.iter().zip([true, true, false]) {
        let total = |event: usize| dump["totals"][event]["count"].as_u64().context("no count");
        let (instructions, branches) = (total(0)?, total(1)?);
        if !counts {
            ensure!(instructions == 0 && branches == 0, "there are no guests{ended}");
            continue;
        }
        ensure!(instructions > 1_000_000, "{instructions} instructions of a busy guest{ended}");
        ensure!(
            (instructions * BRANCHES_PER_ITERATION).abs_diff(branches * INSTRUCTIONS_PER_ITERATION)
                < instructions / 20,
            "{instructions} instructions, {branches} branches{ended}"
        );
    }
    Ok(())
}
