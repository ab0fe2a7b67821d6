//! Programs that know nothing of this project, through `/dev/perfctr`: perfctr 2.6's examples on its own library, of 64 and
//! of 32 bits, and PAPI.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use tests::counts::Counts;
use tests::event::{BRANCHES, INSTRUCTIONS};

use super::{PERFEX, differ_exactly};
use crate::answers::{self, Answers};
use crate::case::{Case, Evidence, Setting, Test, nothing_asked};

pub(crate) const CASE: Case =
    Case { name: "older-programs", limit: Duration::from_secs(120), guest, answer: nothing_asked, tests };

/// In `images::older`'s folder, which is copied to `/bin`.
pub(crate) const PROGRAMS: [&str; 12] = [
    "perfctr-self",
    "perfctr-signal",
    "perfctr-perfex",
    "perfctr-global",
    "perfctr-self-i386",
    "perfctr-signal-i386",
    "perfctr-perfex-i386",
    "perfctr-global-i386",
    "papi-command-line",
    "papi-first",
    "papi-zero_fork",
    "papi-zero_pthreads",
];

const SHORT: u64 = 1_000;
const LONG: u64 = 2_345_678;

/// Those of perfctr 2.6 by the ends of their names: 64 bits, 32 bits.
const BITS: [&str; 2] = ["", "-i386"];

fn guest(_: &Setting) -> String {
    let line = |name: &str| match name.strip_prefix("perfctr-").and_then(|name| name.split('-').next()) {
        Some("perfex") => {
            let perfex = PERFEX.replacen("perfex", name, 1).replace("C0 ", "C0@0 ");
            format!("{perfex}@1 spin {SHORT:012}; {perfex}@1 spin {LONG:012}")
        }
        // It goes on until it is interrupted.
        Some("global") => format!("{name} 1000000 1 & sleep 3.5; kill -INT $!; wait $!"),
        _ if name == "papi-command-line" => format!("{name} PAPI_TOT_INS PAPI_BR_INS"),
        _ => name.to_owned(),
    };
    answers::script(PROGRAMS.into_iter().map(|name| (name, line(name))))
}

type Check = fn(&Evidence, &str) -> Result<()>;

fn tests() -> Vec<Test> {
    let test = |name: String, check: Check| {
        let program = name.clone();
        Test { name: name.replace('_', "-"), check: Box::new(move |evidence| check(evidence, &program)) }
    };
    let examples: [(&str, Check); 4] =
        [("self", itself), ("signal", signal), ("perfex", perfex), ("global", global)];
    let papis: [(&str, Check); 4] = [
        ("papi-command-line", command_line),
        ("papi-first", |evidence, name| passed(evidence, name).map(drop)),
        ("papi-zero_fork", fork),
        ("papi-zero_pthreads", threads),
    ];
    let examples = BITS
        .iter()
        .flat_map(|bits| examples.map(|(example, check)| test(format!("perfctr-{example}{bits}"), check)));
    examples.chain(papis.map(|(name, check)| test(name.to_owned(), check))).collect()
}

/// What a program printed, if it ended with 0.
fn said<'a>(evidence: &'a Evidence, name: &str) -> Result<&'a str> {
    Answers::of(evidence)?.said(name, 0)
}

/// The verdict of PAPI's own test, and what it printed.
fn passed<'a>(evidence: &'a Evidence, name: &str) -> Result<&'a str> {
    let said = said(evidence, name)?;
    ensure!(said.lines().any(|line| line.trim() == "PASSED"), "{name}:\n{said}");
    Ok(said)
}

/// The numbers at the ends of the lines that have `word`.
fn numbers(said: &str, word: &str) -> Result<Vec<u64>> {
    let lines = said.lines().filter(|line| line.contains(word));
    let numbers = lines.map(|line| line.split_whitespace().next_back().unwrap_or_default().parse());
    numbers.collect::<Result<_, _>>().with_context(|| format!("no numbers of {word} in\n{said}"))
}

fn itself(evidence: &Evidence, name: &str) -> Result<()> {
    let said = said(evidence, name)?;
    let (tsc, pmc) = (numbers(said, "tsc\t")?, numbers(said, "pmc[0]\t")?);
    ensure!(tsc.len() == 1 && tsc[0] > 0 && pmc.len() == 1 && pmc[0] > 0, "{said}");
    Ok(())
}

/// It takes a signal at every 25th branch, shows where it was, and ends with 0.
fn signal(evidence: &Evidence, name: &str) -> Result<()> {
    let said = said(evidence, name)?;
    ensure!(said.contains("on_sigio: PMC overflow set 0x2 at pc 0x"), "{said}");
    Ok(())
}

/// The old perfex counts what ours does; it shows the counter of each event of [`PERFEX`] as well.
fn perfex(evidence: &Evidence, name: &str) -> Result<()> {
    let said = said(evidence, name)?;
    let (tsc, instructions) = (numbers(said, "tsc\t")?, numbers(said, "event 0x004100C0@0")?);
    let branches = numbers(said, "event 0x004100C2@1")?;
    ensure!([tsc.len(), instructions.len(), branches.len()] == [2; 3], "{said}");
    let counts = |i: usize| Counts {
        tsc: tsc[i],
        events: vec![(INSTRUCTIONS, instructions[i]), (BRANCHES, branches[i])],
    };
    differ_exactly((&counts(0), SHORT), (&counts(1), LONG))
}

/// Whole CPUs, a second at a time, until it is interrupted: the TSC goes on.
fn global(evidence: &Evidence, name: &str) -> Result<()> {
    let said = said(evidence, name)?;
    ensure!(said.contains("\nCPU 0:") && said.ends_with("shutting down..\n"), "{said}");
    let tsc = numbers(said, "\ttsc\t")?;
    let vcpus = evidence.setting.vcpus as usize;
    ensure!(tsc.len() >= 2 * vcpus && tsc.len().is_multiple_of(vcpus), "{said}");
    ensure!(tsc[0] > 0 && tsc.windows(vcpus + 1).all(|two| two[0] < two[vcpus]), "{said}");
    Ok(())
}

fn command_line(evidence: &Evidence, name: &str) -> Result<()> {
    let said = said(evidence, name)?;
    for event in ["PAPI_TOT_INS :", "PAPI_BR_INS :"] {
        let counts = numbers(said, event)?;
        ensure!(counts.len() == 1 && counts[0] > 0, "{said}");
    }
    Ok(())
}

/// PAPI's loops of N and M iterations differ by (M - N) times what one iteration executes, to the instruction.
fn fork(evidence: &Evidence, name: &str) -> Result<()> {
    // The third is the parent, whose way to its reading is another.
    let mut counts = numbers(passed(evidence, name)?, "PAPI_TOT_INS")?;
    counts.sort_unstable();
    ensure!(counts.len() == 3 && counts[1].checked_sub(counts[0]) == Some(5_000_000), "{counts:?}");
    Ok(())
}

/// Two threads of 500,000 iterations, and of twice as many, four and sixteen times: five instructions an iteration.
fn threads(evidence: &Evidence, name: &str) -> Result<()> {
    let mut counts = numbers(passed(evidence, name)?, "PAPI_TOT_INS")?;
    counts.sort_unstable();
    let Some(&least) = counts.first() else { anyhow::bail!("no counts") };
    let more: Vec<u64> = counts.iter().map(|count| count - least).collect();
    ensure!(more == [0, 0, 7_500_000, 17_500_000, 37_500_000], "{counts:?}");
    Ok(())
}
