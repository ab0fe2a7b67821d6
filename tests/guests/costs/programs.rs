//! Whole programs, counted from their start to their end: what `perfex` does, and `perf stat`.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use perf_event::Builder;
use perf_event::events::Hardware;

use crate::cpu::on_first_cpu;
use crate::operation::{Operation, Run};

/// The argument with which this program is the one that is run: it ends at once.
pub(crate) const NOTHING: &str = "--nothing";
/// Instructions in user mode, of an AMD processor.
const INSTRUCTIONS: &str = "0x004100C0";

pub(crate) fn operations() -> [Operation; 3] {
    [
        Operation { name: "run/nobody", length: 10, prepare: || programs(&[]) },
        Operation {
            name: "run/perfctr-perfex",
            length: 10,
            prepare: || programs(&["perfex", "-e", INSTRUCTIONS]),
        },
        Operation { name: "run/perf-stat", length: 10, prepare: counted_by_perf },
    ]
}

/// This program, as the last words of a command.
fn programs(before: &[&str]) -> Result<Run> {
    on_first_cpu()?;
    let mut words: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
    let own = std::env::current_exe().context("this program has no file")?;
    words.extend([own.display().to_string(), NOTHING.to_owned()]);
    run(&words)?;
    Ok(Box::new(move |n| (0..n).try_for_each(|_| run(&words))))
}

fn run(words: &[String]) -> Result<()> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| words[0].clone())?;
    ensure!(status.success(), "{} ended with {status}", words[0]);
    Ok(())
}

/// A counter that children have from their start on, read when they have ended.
fn counted_by_perf() -> Result<Run> {
    let mut program = programs(&[])?;
    let mut once = move || {
        let mut builder = Builder::new(Hardware::INSTRUCTIONS);
        let mut counter = builder.inherit(true).enable_on_exec(true).build()?;
        program(1)?;
        ensure!(counter.read()? > 0, "nothing was counted");
        Ok(())
    };
    once().context("the guest's perf has no such event")?;
    Ok(Box::new(move |n| (0..n).try_for_each(|_| once())))
}
