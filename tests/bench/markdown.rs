//! BENCHMARKS.md: the results, how they come about, and what was aimed at.

use crate::aims::{self, Aim};
use crate::compare;
use crate::grid::Grid;
use crate::results::Results;
use crate::table;

/// The whole file.
pub(crate) fn text(results: &Results) -> String {
    let grids: String = compare::grids(results).iter().map(Grid::markdown).collect();
    let aims: String = aims::aims(results).iter().map(line).collect();
    let details: String = results
        .systems
        .iter()
        .map(|measured| {
            format!("### {}\n\n```text\n{}```\n\n", measured.system.title(), table::text(measured))
        })
        .collect();
    let remark = results.remark.as_ref().map(|remark| format!(" {remark}")).unwrap_or_default();
    format!(
        "{HEAD}\nGuest kernel {}, PMU {}.{remark}\n\n{grids}{AIMS}{aims}\n{DETAILS}{details}",
        results.kernel, results.pmu
    )
}

fn line(aim: &Aim) -> String {
    let Aim { aim: name, limit, measured, digits, cause } = aim;
    let verdict = match (measured, cause) {
        (Err(reason), _) => format!("not measured: {reason}"),
        _ if aim.is_met() => "met".to_owned(),
        (_, Some(cause)) => format!("missed: {cause}"),
        (_, None) => "missed".to_owned(),
    };
    format!("| {name} | {limit:.digits$} | {} | {verdict} |\n", aim.number())
}

const HEAD: &str = "# Benchmarks

Written by a run of the benchmark. All of it is made by

    cargo xtask bench --write --page bench.html --json bench.json

in about twenty minutes on two processors, on each a lab machine of its own: what one counts does not depend on what the other does. A run that was interrupted
goes on with `--resume`. Or part by part, each with `--json` of its own and at the end `--again --write --from a.json --from b.json`; one
operation of one system by for example

    cargo xtask bench --systems perf switch/perfctr-4

The unit is *instructions executed* and *exits* per operation, in the lab machine: an emulated AMD processor whose counters are exact,
with Debian's 6.12 kernel and KVM as the host. An operation is done n times and 3n times, and costs the difference divided by 2n;
of three such pairs the median is taken. The lab's time goes by the instructions it executes (one a nanosecond), so that timers are the
same small share of everything however busy the machine is; exits that are a timer's show as hundredths. Times mean nothing there, and
there are none here. Less than nothing is such noise, too, and shown as 0.

The emulated processor does not save the address of the next instruction at an exit, so that KVM decodes every instruction that it
skips. That makes exits dearer than on most processors, for every VMM alike.

* *perfctr* is the guest driver, *perf* the guest kernel's own. Both run on perfvisor's counters.
* *QEMU and KVM's vPMU* is Debian's QEMU (microvm) with `-cpu host,pmu=on`, the same guest kernel and the same programs.
* *Alioth* is the VMM in Rust that crates.io has.
* A dash stands for what there is not: no guest driver on QEMU, no such operation of perf's. What could not be measured has a letter, and the reason
  below the table.
* A system with the host module is measured by two counters of each processor that no guest uses: what all of the machine
  executes. The others are measured by the host's perf: what the VMM's threads execute, in user and in kernel mode.
";

const AIMS: &str = "## Aims

| aim | at most | measured | |
|---|---:|---:|---|
";

const DETAILS: &str = "## Every operation

What an operation's name stands for is in `tests/guests/costs`.

";
