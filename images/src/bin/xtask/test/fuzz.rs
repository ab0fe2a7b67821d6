//! The step `fuzz`: each target for a short time that is the same everywhere. Long runs are `cargo xtask fuzz`.

use anyhow::Result;
use images::layout::Layout;
use images::process::Program;

use super::tally::Tally;
use crate::fuzz;

/// Inputs that each target is given: seconds on an idle machine, the same ones everywhere.
fn runs(target: &str) -> u64 {
    match target {
        "registers" => 60_000,
        "doorbell" => 30_000,
        _ => 15_000,
    }
}

pub(super) fn run(layout: &Layout) -> Result<Tally> {
    if let Some(reason) = fuzz::missing() {
        return Ok(Tally::skipped("fuzz", &reason));
    }
    fuzz::build(layout)?;
    let mut tally = Tally::default();
    for (target, what) in fuzz::TARGETS {
        tally += short_run(layout, target, what)?;
    }
    Ok(tally)
}

fn short_run(layout: &Layout, target: &str, what: &str) -> Result<Tally> {
    let runs = runs(target);
    let findings = layout.log(&format!("fuzz-{target}")).with_extension("");
    let program = Program::new(fuzz::program(target))
        .arg(format!("-runs={runs}"))
        .args(["-seed=1", "-max_len=512", "-timeout=10", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}-", findings.display()));
    let mut executed = 0;
    let mut coverage = String::new();
    let (success, tail) = program.log(layout.log(&format!("fuzz-{target}"))).stream(|line| {
        executed = executions(line).unwrap_or(executed);
        if let Some(found) = edges(line) {
            found.clone_into(&mut coverage);
        }
    })?;
    if success && executed >= runs {
        println!("{target} ({what}): {executed} executions, {coverage} edges");
        return Ok(Tally::passed(1));
    }
    println!("{target} ({what}) after {executed} executions:\n{}", tail.join("\n"));
    Ok(Tally::failed(&format!("fuzz {target}")))
}

/// `stat::number_of_executed_units: 60000`
fn executions(line: &str) -> Option<u64> {
    line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok()
}

/// `#60000  DONE   cov: 1094 ft: ...`
fn edges(line: &str) -> Option<&str> {
    line.split_once(" cov: ")?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libfuzzer_is_understood() {
        assert_eq!(executions("stat::number_of_executed_units: 60000"), Some(60_000));
        assert_eq!(executions("stat::average_exec_per_sec:     17"), None);
        let line = "#60000\tDONE   cov: 1094 ft: 4711 corp: 322/46Kb lim: 512 exec/s: 12000 rss: 51Mb";
        assert_eq!(edges(line), Some("1094"));
        assert_eq!(edges("INFO: seed corpus: files: 12"), None);
    }
}
