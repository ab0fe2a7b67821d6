//! One count, seen by perfex in a guest and by `perfvisor dump` on the host, beside what it must be.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tests::counts::{self, Counts};
use tests::event::{BRANCHES, INSTRUCTIONS};
use tests::workload::{BRANCHES_PER_ITERATION, INSTRUCTIONS_PER_ITERATION};

/// Two runs of the same program; the same number of digits, so that reading them costs the same.
const ITERATIONS: [u64; 2] = [1_000_000, 3_000_000];
/// The guest's name.
const NAME: &str = "demo";
/// The guest is at this line when everything is counted and it still runs.
const COUNTED: &str = "demo: counted";

fn main() -> ExitCode {
    let lab = env::args().any(|argument| argument == "--lab");
    match demo(lab) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo(lab: bool) -> Result<bool> {
    let folder = env::current_exe()?.parent().context("this program is in a folder")?.to_owned();
    let perfvisor = || {
        let mut command = Command::new(folder.join("perfvisor"));
        command.args(lab.then_some("--lab"));
        command
    };

    let runs = ITERATIONS
        .map(|n| format!("perfex -e {INSTRUCTIONS:#010X} -e {BRANCHES:#010X} spin {n:07} 2>&1"))
        .join("; ");
    // `read` keeps the guest alive while the host looks at it.
    let script = format!("{runs}; echo \"{COUNTED}\"; read line");
    let mut spin = folder.join("spin").into_os_string();
    spin.push(":/usr/bin/spin");
    let mut run = perfvisor();
    run.args(["run", "--name", NAME, "--vcpus", "2", "--copy"]).arg(spin).args(["--", "sh", "-c", &script]);
    println!("$ perfvisor run --name {NAME} --vcpus 2 --copy spin:/usr/bin/spin -- sh -c '{script}'");
    let mut guest = Guest(run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("perfvisor run")?);
    let said = until_counted(&mut guest.0)?;
    let guest_counts = counts::parse(&said)?;
    let [short, long] = &guest_counts[..] else {
        bail!("perfex should have counted twice, but the guest said:\n{said}");
    };

    println!("\n$ perfvisor dump {NAME}");
    ensure!(perfvisor().args(["dump", NAME]).status()?.success(), "perfvisor dump failed");
    let json = perfvisor().args(["dump", NAME, "--format", "json"]).output()?;
    ensure!(json.status.success(), "perfvisor dump --format json failed");
    let dump: Value = serde_json::from_slice(&json.stdout).context("the dump is not JSON")?;

    // The end of its input ends the guest.
    drop(guest.0.stdin.take());
    let status = guest.0.wait()?;
    // `read` at the end of its input is 1.
    ensure!(status.code() == Some(1), "the guest ended with {status}");

    println!();
    let mut agree = true;
    for (name, event, each) in [
        ("instructions", INSTRUCTIONS, INSTRUCTIONS_PER_ITERATION),
        ("branches", BRANCHES, BRANCHES_PER_ITERATION),
    ] {
        agree &= compare(name, event, each, short, long, &dump)?;
    }
    println!("\n{}", if agree { "All counts agree." } else { "THE COUNTS DISAGREE." });
    Ok(agree)
}

/// Prints the guest's output as it comes, and gives it.
fn until_counted(guest: &mut Child) -> Result<String> {
    let mut said = String::new();
    for line in BufReader::new(guest.stdout.take().context("no pipe")?).lines() {
        let line = line?;
        if line == COUNTED {
            return Ok(said);
        }
        println!("{line}");
        std::io::stdout().flush()?;
        said += &line;
        said.push('\n');
    }
    bail!("the guest ended before everything was counted")
}

fn compare(name: &str, event: u32, each: u64, short: &Counts, long: &Counts, dump: &Value) -> Result<bool> {
    let [less, more] = ITERATIONS;
    let (short, long) = (short.of(event)?, long.of(event)?);
    let known = (more - less) * each;
    let difference = long.wrapping_sub(short);
    let per_vcpu = on_host(dump, event)?;
    let host: u64 = per_vcpu.iter().sum();
    let parts: Vec<String> = per_vcpu.iter().enumerate().map(|(i, n)| format!("vCPU {i} {n}")).collect();
    println!("{name} (event {event:#010X}) in user mode");
    line("known", &format!("{} more iterations of {each}", more - less), known, "");
    line("guest", &format!("perfex, {long} - {short}"), difference, verdict(difference == known));
    line("guest", &format!("perfex, {long} + {short}"), long + short, "");
    line("host", &format!("dump, {}", parts.join(" + ")), host, verdict(host == long + short));
    Ok(difference == known && host == long + short)
}

fn line(who: &str, how: &str, count: u64, verdict: &str) {
    println!("{}", format!("  {who:<6}  {how:<46} {count:>12}  {verdict}").trim_end());
}

fn verdict(agrees: bool) -> &'static str {
    if agrees { "agrees" } else { "DISAGREES" }
}

/// What each vCPU counted of `event`.
fn on_host(dump: &Value, event: u32) -> Result<Vec<u64>> {
    let vcpus = dump["vcpus"].as_array().context("the dump has no vCPUs")?;
    let total = |vcpu: &Value| -> Option<u64> {
        let events = vcpu["pmu"]["events"].as_array()?;
        Some(
            events.iter().filter(|row| row["evntsel"] == event).filter_map(|row| row["total"].as_u64()).sum(),
        )
    };
    vcpus.iter().map(|vcpu| total(vcpu).context("a vCPU of the dump has no events")).collect()
}

/// A guest that does not outlive the demo.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
