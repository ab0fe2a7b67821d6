//! How machines end, and begin again.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use images::process::Guarded;

use crate::perfvisor::{self, BOOT_LIMIT, RUN_FAILED};

/// The command switches the machine off under itself: there is no status of its to pass on.
pub(super) fn off_by_the_command() -> Result<()> {
    let ended = perfvisor::run(["run", "--name", "test-off", "--", "poweroff"], b"", BOOT_LIMIT)?;
    ended.expect_refusal(RUN_FAILED, &["perfvisor: the"])
}

/// Who switches a machine off at its shell is done with it.
pub(super) fn off_at_the_shell() -> Result<()> {
    let ended = perfvisor::run(["run", "--name", "test-off"], b"poweroff; sleep 60\n", BOOT_LIMIT)?;
    ended.expect_status(0)
}

/// A restart at the shell leads to a shell of the new boot.
pub(super) fn restart_at_the_shell() -> Result<()> {
    let mut command = perfvisor::command(["run", "--name", "test-restart"])?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Guarded::spawn(&mut command)?;
    let mut stdin = child.0.stdin.take().context("no pipe")?;
    let stderr = child.0.stderr.take().context("no pipe")?;
    stdin.write_all(b"echo before > /tmp/mark; reboot; sleep 60\n")?;
    // Ends at the latest when the child is killed for taking too long.
    let limit = std::thread::spawn(move || -> Result<_> {
        let mut said = String::new();
        for line in BufReader::new(stderr).lines() {
            let line = line?;
            if line.contains("the guest restarts") {
                stdin.write_all(b"ls /tmp/mark; echo back; exit 5\n")?;
                drop(stdin);
                return Ok(said);
            }
            said += &line;
            said.push('\n');
        }
        anyhow::bail!("it did not restart: {said}")
    });
    let status = child.wait(BOOT_LIMIT * 2)?;
    let mut stdout = String::new();
    child.0.stdout.take().context("no pipe")?.read_to_string(&mut stdout)?;
    limit.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    ensure!(status == Some(5), "ended with {status:?}, expected 5:\n{stdout}");
    ensure!(stdout == "back\n", "a new boot has nothing of the old one, but the shell said:\n{stdout}");
    Ok(())
}

/// A kernel that panics at once: the error shows the end of its console.
pub(super) fn panic_at_boot() -> Result<()> {
    let options = ["run", "--name", "test-panic", "--append", "rdinit=/nothing root=/nothing", "--", "true"];
    let ended = perfvisor::run(options, b"", BOOT_LIMIT)?;
    ended.expect_refusal(RUN_FAILED, &["the guest restarted before it was ready", "kernel panic"])
}

/// A command that ignores signals is ended by insistence; so is one in a machine that hangs.
pub(super) fn insistence() -> Result<()> {
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let mut command = perfvisor::command(["run", "--name", "test-insist", "--", "sh", "-c", script])?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Guarded::spawn(&mut command)?;
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().context("no pipe")?).read_line(&mut line)?;
    ensure!(line == "ready\n", "the guest said {line:?}");
    let pid = child.0.id().to_string();
    let terminate = || std::process::Command::new("kill").args(["-TERM", &pid]).status();
    ensure!(terminate()?.success(), "kill failed");
    std::thread::sleep(std::time::Duration::from_secs(1));
    ensure!(child.0.try_wait()?.is_none(), "the first signal is the command's, which ignores it");
    for _ in 0..2 {
        ensure!(terminate()?.success(), "kill failed");
    }
    let status = child.wait(std::time::Duration::from_secs(20))?;
    ensure!(status == Some(128 + 15), "ended with {status:?}, expected 143");
    Ok(())
}
