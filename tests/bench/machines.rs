//! Machines that do nothing, and what they take.

use std::fs;
use std::io::Read;
use std::process::Child;

use anyhow::{Context, Result, ensure};

use crate::piped::started;

/// They end with this.
#[derive(Default)]
pub(crate) struct Machines(pub(crate) Vec<Child>);

impl Machines {
    /// Start as many as are lacking, one after the other, each until it has said these words. `{}` in the command is the
    /// number of the machine.
    pub(crate) fn grow(&mut self, number: usize, words: &str, command: &[String]) -> Result<()> {
        for index in self.0.len()..number {
            let words_of_it: Vec<String> =
                command.iter().map(|word| word.replace("{}", &index.to_string())).collect();
            let mut child = started(&words_of_it)?;
            let output = child.stdout.take().context("no pipe")?;
            self.0.push(child);
            wait_for(words.trim(), output).with_context(|| format!("machine {index} of {number}"))?;
        }
        Ok(())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended is no harm.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reads up to these words.
pub(crate) fn wait_for(words: &str, mut output: impl Read) -> Result<()> {
    let mut said = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = output.read(&mut buffer)?;
        said.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&said);
        if text.contains(words) {
            return Ok(());
        }
        ensure!(count > 0, "it ended and did not say '{words}': {text}");
    }
}

/// Of a process, in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Its share of what it has, shared memory by the number of those who share it.
    pub(crate) pss: u64,
    /// Of it what is its alone and not a file's.
    pub(crate) anonymous: u64,
}

impl Memory {
    /// All mappings but those that are as large as the guest's RAM.
    pub(crate) fn beyond_guest(process: u32, guest: u64) -> Result<Self> {
        let path = format!("/proc/{process}/smaps");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let mut all = Self::default();
        let mut is_guest = false;
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let bytes = || -> Option<u64> {
                value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kb| kb << 10)
            };
            match (name, bytes()) {
                ("Size", Some(size)) => is_guest = size >= guest,
                ("Pss", Some(pss)) if !is_guest => all.pss += pss,
                ("Anonymous", Some(anonymous)) if !is_guest => all.anonymous += anonymous,
                _ => {}
            }
        }
        ensure!(all.pss > 0, "{path} has no sizes");
        Ok(all)
    }
}
