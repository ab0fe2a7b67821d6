//! One boot of a guest that runs the guest halves of its cases.
//!
//! The script marks where a case begins and ends on standard output, and where it waits; a line on standard input lets
//! it go on. So the protocol needs nothing of perfvisor but that streams arrive as they are.

mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use images::process::Guarded;

use self::script::Mark;
use crate::case::{Case, Evidence, Waiting};
use crate::cases::dump_of_gone;
use crate::dump::Dump;
use crate::guest::{Guest, Outcome};
use crate::perfvisor::{self, BOOT_LIMIT, COMMAND_LIMIT, tail};

/// Boot `guest` and see it through.
pub(crate) fn run(guest: &Guest) -> Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let (script, report, errors) =
        (folder.path().join("cases.sh"), folder.path().join("report.json"), folder.path().join("stderr"));
    fs::write(&script, script::of(guest))?;
    let mut command = perfvisor::command(arguments(guest, &script, &report)?)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors)?);
    let mut child = Guarded::spawn(&mut command)?;
    let (Some(stdin), Some(stdout)) = (child.0.stdin.take(), child.0.stdout.take()) else {
        bail!("no pipes")
    };

    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });

    let mut follower = Follower {
        guest,
        stdin,
        cases: BTreeMap::new(),
        transcript: String::new(),
        times: Vec::new(),
        since: Instant::now(),
    };
    let followed = follower.follow(&lines);
    let Follower { cases, transcript, times, .. } = follower;
    // Its standard input is closed now; what waits there ends.
    let status = match &followed {
        Ok(()) => child.wait(COMMAND_LIMIT),
        Err(_) => Ok(None),
    };
    drop(child);
    let errors = String::from_utf8_lossy(&fs::read(&errors).unwrap_or_default()).into_owned();
    perfvisor::note_retry(&errors);
    let failure =
        followed.err().or(status.as_ref().err().map(|error| anyhow::anyhow!("{error}"))).map(|error| {
            format!(
                "{error:#}\n--- command\n{command:?}\n--- end of its output\n{}\n--- end of its errors\n{}",
                tail(&transcript),
                tail(&errors)
            )
        });
    let report =
        perfvisor::written(&report).and_then(|json| Dump::parse(&json)).map_err(|error| format!("{error:#}"));
    // A guest that failed is judged by that; asking after it might start another lab machine.
    let gone = match &failure {
        None => dump_of_gone(guest.name).map_err(|error| format!("{error:#}")),
        Some(_) => Ok(()),
    };
    Ok(Outcome { cases, failure, status: status.ok().flatten(), report, gone, transcript, times })
}

fn arguments(guest: &Guest, script: &Path, report: &Path) -> Result<Vec<String>> {
    let copy = |from: &str, to: &str| ["--copy".to_owned(), format!("{from}:{to}")];
    let mut arguments: Vec<String> =
        ["run", "--name", guest.name, "--kernel", guest.kernel, "--memory", "256M"]
            .into_iter()
            .map(str::to_owned)
            .collect();
    arguments.extend(["--vcpus".to_owned(), guest.vcpus.to_string()]);
    arguments.extend(["--pmu", guest.pmu, "--source", guest.source].map(str::to_owned));
    if !guest.append.is_empty() {
        arguments.extend(["--append", guest.append].map(str::to_owned));
    }
    arguments.extend(["--report".to_owned(), report.display().to_string()]);
    arguments.extend(copy(env!("CARGO_BIN_EXE_spin"), "/bin/spin"));
    arguments.extend(copy(env!("CARGO_BIN_EXE_pmctest"), "/bin/pmctest"));
    let mut copied = BTreeSet::new();
    for case in guest.cases {
        for (from, to) in (case.copies)().with_context(|| format!("files of case '{}'", case.name))? {
            // Several cases may bring the same.
            if copied.insert(to.clone()) {
                arguments.extend(copy(&from.display().to_string(), &to));
            }
        }
    }
    arguments.extend(copy(&script.display().to_string(), "/root/cases.sh"));
    arguments.extend(["--", "sh", "/root/cases.sh"].map(str::to_owned));
    Ok(arguments)
}

/// Reads the script's output as it comes.
struct Follower<'a> {
    guest: &'a Guest,
    stdin: ChildStdin,
    cases: BTreeMap<&'static str, Evidence>,
    transcript: String,
    times: Vec<(String, Duration)>,
    /// When the part began that is under way.
    since: Instant,
}

impl Follower<'_> {
    /// To the end of the output; an error names the case that did not end.
    fn follow(&mut self, lines: &Receiver<String>) -> Result<()> {
        let guest = self.guest;
        for case in guest.cases {
            let limit = if self.cases.is_empty() { BOOT_LIMIT + case.limit } else { case.limit };
            let end = Instant::now() + limit;
            let mut evidence = Evidence::in_guest(guest.setting());
            loop {
                let left = end.saturating_duration_since(Instant::now());
                let line = match lines.recv_timeout(left) {
                    Ok(line) => line,
                    Err(RecvTimeoutError::Timeout) => {
                        bail!("case '{}' did not end within {} s", case.name, limit.as_secs())
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        bail!("the guest ended in or before case '{}'", case.name)
                    }
                };
                match Mark::read(&line) {
                    None => {
                        for text in [&mut self.transcript, &mut evidence.output] {
                            text.push_str(&line);
                            text.push('\n');
                        }
                    }
                    Some(Mark::Begin) => {
                        if self.times.is_empty() {
                            self.part_ended("boot");
                        }
                        self.since = Instant::now();
                        evidence = Evidence::in_guest(guest.setting());
                    }
                    Some(Mark::Ask(question)) => self.answer(case, question, &mut evidence)?,
                    Some(Mark::End(status)) => {
                        evidence.status = status;
                        self.part_ended(case.name);
                        break;
                    }
                }
            }
            self.cases.insert(case.name, evidence);
        }
        Ok(())
    }

    fn part_ended(&mut self, part: &str) {
        self.times.push((part.to_owned(), self.since.elapsed()));
    }

    fn answer(&mut self, case: &Case, question: &str, evidence: &mut Evidence) -> Result<()> {
        let setting = self.guest.setting();
        let waiting = Waiting { question, machine: self.guest.name, setting, transcript: &self.transcript };
        if let Err(error) = (case.answer)(&waiting) {
            evidence.failed_answers.insert(question.to_owned(), format!("{error:#}"));
        }
        self.stdin.write_all(b"go on\n").context("the guest is gone and cannot go on")
    }
}
