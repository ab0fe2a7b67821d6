//! The counts for programs. `--help` describes the fields; they keep their names and meanings while `version` is 1.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;

use libvperfctr::layout::SumCtrs;
use libvperfctr::{Driver, cpu_name};
use serde::Serialize;

use crate::counted::{Counted, Plan, Run};
use crate::statistics::Spread;

/// Of this format.
const VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    cpu_type: u32,
    cpu_name: &'static str,
    command: Option<Vec<String>>,
    pid: Option<i32>,
    runs: Vec<RunCounts<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<Statistics<'a>>,
}

#[derive(Debug, Serialize)]
struct RunCounts<'a> {
    exit_status: Option<i32>,
    signal: Option<i32>,
    tsc: Option<u64>,
    events: Vec<EventCount<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<Vec<Thread>>,
}

#[derive(Debug, Serialize)]
struct EventCount<'a> {
    name: &'a str,
    evntsel: u32,
    escr: u32,
    pmc: u32,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    own: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Thread {
    tid: i32,
    tsc: Option<u64>,
    counts: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Statistics<'a> {
    tsc: Option<Spread>,
    events: Vec<EventSpread<'a>>,
}

#[derive(Debug, Serialize)]
struct EventSpread<'a> {
    name: &'a str,
    #[serde(flatten)]
    spread: Spread,
}

/// What was counted: a command, or the process with this id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'a> {
    Command(&'a [OsString]),
    Process(i32),
}

/// One line. `repeated`: with statistics.
pub(crate) fn document(
    driver: &Driver,
    subject: Subject<'_>,
    plan: &Plan,
    runs: &[Run],
    repeated: bool,
) -> serde_json::Result<String> {
    let (command, pid) = match subject {
        Subject::Command(words) => {
            (Some(words.iter().map(|word| word.to_string_lossy().into_owned()).collect()), None)
        }
        Subject::Process(pid) => (None, Some(pid)),
    };
    let document = Document {
        version: VERSION,
        cpu_type: driver.info.cpu_type,
        cpu_name: cpu_name(driver.info.cpu_type),
        command,
        pid,
        runs: runs.iter().map(|run| run_counts(plan, run, pid.is_some())).collect(),
        statistics: repeated.then(|| statistics(plan, runs)),
    };
    Ok(serde_json::to_string(&document)? + "\n")
}

fn run_counts<'a>(plan: &'a Plan, run: &Run, threads: bool) -> RunCounts<'a> {
    let total = run.counted.total();
    let events = plan.events.iter().enumerate().map(|(i, event)| EventCount {
        name: &event.name,
        evntsel: event.counter.evntsel,
        escr: event.counter.escr,
        pmc: event.counter.pmc,
        count: total.pmc[i],
        own: run.counted.children.map(|_| run.counted.own.pmc[i]),
        children: run.counted.children.map(|children| children.pmc[i]),
    });
    let thread = |(tid, counted): &(i32, Counted)| {
        let total = counted.total();
        Thread { tid: *tid, tsc: tsc(plan, &total), counts: total.pmc[..plan.events.len()].to_vec() }
    };
    RunCounts {
        exit_status: run.status.and_then(|status| status.code()),
        signal: run.status.and_then(|status| status.signal()),
        tsc: tsc(plan, &total),
        events: events.collect(),
        threads: threads.then(|| run.threads.iter().map(thread).collect()),
    }
}

fn tsc(plan: &Plan, sums: &SumCtrs) -> Option<u64> {
    plan.tsc_on().then_some(sums.tsc)
}

fn statistics<'a>(plan: &'a Plan, runs: &[Run]) -> Statistics<'a> {
    let totals: Vec<SumCtrs> = runs.iter().map(|run| run.counted.total()).collect();
    let spread = |value: &dyn Fn(&SumCtrs) -> u64| Spread::of(&totals.iter().map(value).collect::<Vec<_>>());
    let events = plan.events.iter().enumerate().filter_map(|(i, event)| {
        Some(EventSpread { name: &event.name, spread: spread(&|sums| sums.pmc[i])? })
    });
    Statistics { tsc: if plan.tsc_on() { spread(&|sums| sums.tsc) } else { None }, events: events.collect() }
}

#[cfg(test)]
mod tests {
    use libvperfctr::layout::cpu_type;
    use serde_json::{Value, json};

    use super::*;
    use crate::info::tests::machine;
    use crate::report::tests::{plan, run};

    fn value(subject: Subject<'_>, plan: &Plan, runs: &[Run], repeated: bool) -> Value {
        let text = document(&machine(cpu_type::K8), subject, plan, runs, repeated).unwrap();
        assert_eq!(text.lines().count(), 1);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_run_has_all_there_is_to_say() {
        let words = ["spin".into(), "1".into()];
        let document = value(Subject::Command(&words), &plan(), &[run(77 << 8, 12, u64::MAX)], false);
        assert_eq!(
            document,
            json!({
                "version": 1, "cpu_type": 13, "cpu_name": "AMD K8", "command": ["spin", "1"], "pid": null,
                "runs": [{
                    "exit_status": 77, "signal": null, "tsc": 12,
                    "events": [
                        {"name": "0x004100C0", "evntsel": 0x4100C0, "escr": 0, "pmc": 0, "count": u64::MAX},
                        {"name": "branches:u", "evntsel": 0x4100C2, "escr": 0, "pmc": 3, "count": 7},
                    ],
                }],
            })
        );
    }

    #[test]
    fn a_killed_command_has_a_signal_and_no_status() {
        let document = value(Subject::Command(&[]), &plan(), &[run(9, 0, 0)], false);
        assert_eq!(document["runs"][0]["exit_status"], Value::Null);
        assert_eq!(document["runs"][0]["signal"], 9);
    }

    #[test]
    fn repeated_runs_have_statistics() {
        let runs = [run(0, 10, 5), run(0, 20, 5)];
        let document = value(Subject::Command(&[]), &plan(), &runs, true);
        assert_eq!(document["runs"].as_array().unwrap().len(), 2);
        let statistics = &document["statistics"];
        assert_eq!(statistics["tsc"]["mean"], 15.0);
        assert_eq!(
            statistics["events"][0],
            json!({"name": "0x004100C0", "mean": 5.0, "stddev": 0.0, "min": 5, "max": 5})
        );
    }

    #[test]
    fn children_and_threads_are_told_apart() {
        let mut watched = run(0, 30, 3);
        watched.status = None;
        watched.counted.children = Some(run(0, 1, 40).counted.own);
        watched.threads = vec![(5, watched.counted.clone())];
        let document = value(Subject::Process(5), &plan(), &[watched], false);
        assert_eq!((&document["pid"], &document["command"]), (&json!(5), &Value::Null));
        let run = &document["runs"][0];
        assert_eq!(run["exit_status"], Value::Null);
        let event = &run["events"][0];
        assert_eq!((&event["count"], &event["own"], &event["children"]), (&json!(43), &json!(3), &json!(40)));
        assert_eq!(run["threads"], json!([{"tid": 5, "tsc": 31, "counts": [43, 14]}]));
    }

    #[test]
    fn without_a_tsc_it_is_null() {
        let mut plan = plan();
        plan.control.cpu_control.tsc_on = 0;
        let document = value(Subject::Command(&[]), &plan, &[run(0, 1, 1)], true);
        assert_eq!(
            (&document["runs"][0]["tsc"], &document["statistics"]["tsc"]),
            (&Value::Null, &Value::Null)
        );
    }
}
