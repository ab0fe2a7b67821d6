//! A machine that is killed at any instant of its life leaves nothing behind: the counters are free and count exactly, its name
//! is free, and the kernel has nothing to complain of.
//!
//! `KILL_ROUNDS=1000 cargo xtask test kill-at-random`; the rounds are 8 without that. `KILL_SEED` repeats the instants.

use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};

use super::{host_module, test_kernel};
use crate::perfvisor::{self, BOOT_LIMIT};

const ROUNDS: u64 = 8;
/// What a round takes in a busy lab.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
/// The latest instant, after the start. By then the guest has counted for a while.
const LATEST_MS: u64 = 2_500;

/// A K8's counter 0 is set to -256, counts instructions with an interrupt, executes a loop of 10,000 rounds, and all begins
/// anew: writes of registers, thresholds, and time in the guest.
const COUNTS: [u8; 41] = [
    0xB9, 0x04, 0x00, 0x01, 0xC0, // mov ecx, 0xc0010004
    0xB8, 0x00, 0xFF, 0xFF, 0xFF, // mov eax, -256
    0xBA, 0xFF, 0xFF, 0x00, 0x00, // mov edx, 0xffff
    0x0F, 0x30, // wrmsr
    0xB9, 0x00, 0x00, 0x01, 0xC0, // mov ecx, 0xc0010000
    0xB8, 0xC0, 0x00, 0x53, 0x00, // mov eax, 0x005300c0
    0x31, 0xD2, // xor edx, edx
    0x0F, 0x30, // wrmsr
    0xBB, 0x10, 0x27, 0x00, 0x00, // mov ebx, 10000
    0x4B, // dec ebx
    0x75, 0xFD, // jnz -3
    0xEB, 0xD7, // jmp -41
];
/// Ends its machine with status 85: `mov al, 0x2a`, `out 0xf4, al`.
const ENDS: [u8; 4] = [0xB0, 0x2A, 0xE6, 0xF4];

/// For each pair of a source and a number of milliseconds: a machine that counts is killed after that time. Then perf counts
/// exactly, the module can be opened and counts exactly, and the log is clean (`module perf`); no machine is listed; and
/// another one of the same name runs to its end.
const SCRIPT: &str = r#"
machine() { perfvisor run --name kill-at-random --pmu k8 --source "$1" --kernel "/root/$2" </dev/null; }
while [ $# -ge 2 ]; do
    perfvisor run --name kill-at-random --pmu k8 --source "$1" --kernel /root/counts </dev/null >/tmp/killed 2>&1 &
    sleep $(($2 / 1000)).$(printf %03d $(($2 % 1000)))
    kill -KILL $!; wait $!
    status=$?
    [ $status = 137 ] || echo "$1 after $2 ms: it had ended with $status: $(cat /tmp/killed)"
    grep -q . /tmp/killed && echo "$1 after $2 ms: it said $(cat /tmp/killed)"
    module perf >/tmp/said || echo "$1 after $2 ms: $(grep -v '^ok ' /tmp/said)"
    perfvisor list 2>/dev/null | grep -q kill-at-random && echo "$1 after $2 ms: it is listed"
    machine "$1" ends >/tmp/said 2>&1
    [ $? = 85 ] || echo "$1 after $2 ms: the next ended with something else: $(cat /tmp/said)"
    echo "round $1 $2"
    shift 2
done"#;

fn number(variable: &str) -> Result<Option<u64>> {
    let text = std::env::var(variable).ok();
    text.map(|text| text.parse().with_context(|| format!("{variable}={text}"))).transpose()
}

/// Instants from 0 on, half of them in the first fifth: the start is where a machine takes what it needs.
fn instants(seed: u64, rounds: u64) -> impl Iterator<Item = u64> {
    // xorshift64
    let step = |x: &u64| {
        let x = x ^ x << 13;
        let x = x ^ x >> 7;
        Some(x ^ x << 17)
    };
    let random = std::iter::successors(Some(seed | 1), step).skip(10).take(rounds as usize);
    random.map(|x| (x >> 8) % if x & 1 == 0 { LATEST_MS } else { LATEST_MS / 5 })
}

pub(super) fn at_random() -> Result<()> {
    let rounds = number("KILL_ROUNDS")?.unwrap_or(ROUNDS);
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = number("KILL_SEED")?.unwrap_or_else(clock);
    println!("KILL_SEED={seed} KILL_ROUNDS={rounds}");
    let folder = tempfile::tempdir()?;
    let in_folder = |name: &str| folder.path().join(name);
    host_module::program(&folder)?;
    for (name, code) in [("counts", &COUNTS[..]), ("ends", &ENDS)] {
        fs::write(in_folder(name), test_kernel::image_of(code))?;
    }
    let copies = [
        format!("{}:/bin/perfvisor", perfvisor::program()?.display()),
        format!("{}:/bin/module", in_folder("module").display()),
        format!("{}:/root/counts", in_folder("counts").display()),
        format!("{}:/root/ends", in_folder("ends").display()),
    ];
    let mut arguments: Vec<String> = vec!["lab".into(), "exec".into()];
    arguments.extend(copies.into_iter().flat_map(|copy| ["--copy".to_owned(), copy]));
    arguments.extend(["--", "sh", "-c", SCRIPT, "sh"].map(str::to_owned));
    for (i, instant) in instants(seed, rounds).enumerate() {
        arguments.extend([["perf", "module"][i % 2].to_owned(), instant.to_string()]);
    }
    let limit = BOOT_LIMIT + ROUND_LIMIT * rounds.try_into()?;
    let ended = perfvisor::run(arguments, b"", limit)?;
    let said = String::from_utf8_lossy(&ended.stdout);
    let (done, others): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("round "));
    ensure!(others.is_empty(), "{} rounds, and:\n{}", done.len(), others.join("\n"));
    ensure!(done.len() as u64 == rounds, "{} of {rounds} rounds{ended}", done.len());
    ended.expect_status(0)
}
