//! Programs that know nothing of this project, through `/dev/perfctr`: perfctr 2.6's examples on its own library, of 64 and
//! of 32 bits, and PAPI.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use images::layout::Layout;

use tests::counts::Counts;
use tests::event::{BRANCHES, INSTRUCTIONS};

use super::counted::{PERFEX, differ_exactly};
use crate::answers::{self, Answers};
use crate::case::{Case, Copied, Evidence, Setting, Test, nothing_asked};

pub(crate) const CASE: Case = Case {
    name: "older-programs",
    copies,
    limit: Duration::from_secs(120),
    guest,
    answer: nothing_asked,
    tests,
};

/// In `images::older`'s folder.
const PROGRAMS: [&str; 12] = [
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
        Some("global") => format!("{name} 1000000 1"),
        _ if name == "papi-command-line" => format!("{name} PAPI_TOT_INS PAPI_BR_INS"),
        _ => name.to_owned(),
    };
    answers::script(PROGRAMS.into_iter().map(|name| (name, line(name))))
}

fn copies() -> Result<Vec<Copied>> {
    let programs = Layout::open()?.older_programs();
    let programs =
        programs.context("older programs are not there; run `cargo xtask test images`, which makes them")?;
    Ok(PROGRAMS.map(|name| (programs.join(name), format!("/bin/{name}"))).to_vec())
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

/// It asks a K8's event 0CB (floating-point instructions) for an interrupt. The lab's processor is of another generation, on which
/// that event means something else: it is refused, where it once counted nothing.
fn signal(evidence: &Evidence, name: &str) -> Result<()> {
    refused(evidence, name, "\nevntsel[0]\t\t0x005301CB\n")
}

/// The control with this event select is refused, and with the reason.
fn refused(evidence: &Evidence, name: &str, evntsel: &str) -> Result<()> {
    let said = Answers::of(evidence)?.said(name, 1)?;
    ensure!(said.contains("perfctr_control: Operation not supported\n") && said.contains(evntsel), "{said}");
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

/// The same event on whole CPUs.
fn global(evidence: &Evidence, name: &str) -> Result<()> {
    refused(evidence, name, "\nevntsel[0]\t\t0x004301CB\n")
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

/// Threads of 0.5, 2, 4 and 8 million iterations, of five instructions each, and one that was to have a million: the program changes that
/// number to its own half a million, which the thread may see or not.
fn threads(evidence: &Evidence, name: &str) -> Result<()> {
    let mut counts = numbers(passed(evidence, name)?, "PAPI_TOT_INS")?;
    counts.sort_unstable();
    let Some(&least) = counts.first() else { anyhow::bail!("no counts") };
    let more: Vec<u64> = counts.iter().map(|count| count - least).collect();
    let known = |changed| [0, changed, 7_500_000, 17_500_000, 37_500_000];
    ensure!(more == known(0) || more == known(2_500_000), "{counts:?}");
    Ok(())
}
