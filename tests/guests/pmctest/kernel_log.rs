//! What the kernel says while something is tried.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};

/// What is wrong whatever its level.
const MARKS: [&str; 9] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "Call Trace",
    "INFO: rcu",
    "INFO: task",
    "lockup",
    "refcount_t",
    "counts were lost",
];
/// KERN_ERR; smaller is worse.
const ERROR: u32 = 3;

/// /dev/kmsg, from where it was begun.
pub(crate) struct KernelLog(File);

impl KernelLog {
    pub(crate) fn begin() -> Result<Self> {
        let mut log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
        log.seek(SeekFrom::End(0)).context("/dev/kmsg")?;
        Ok(Self(log))
    }

    /// Fails with the lines that complain.
    pub(crate) fn is_clean(&mut self) -> Result<()> {
        let complaints = self.lines(complaint)?;
        ensure!(complaints.is_empty(), "the kernel says: {}", complaints.join(" | "));
        Ok(())
    }

    /// How many lines have `words`.
    pub(crate) fn count(&mut self, words: &str) -> Result<usize> {
        Ok(self.lines(|record| record.contains(words).then(String::new))?.len())
    }

    /// What `of` makes of each record since the last time.
    fn lines(&mut self, of: impl Fn(&str) -> Option<String>) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(length) => lines.extend(of(&String::from_utf8_lossy(&record[..length]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // It was written faster than read: what is left is there.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error).context("/dev/kmsg"),
            }
        }
        Ok(lines)
    }
}

/// A record is "facility and level,number,time,flags;text" and lines of details.
fn complaint(record: &str) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let level = head.split(',').next()?.parse::<u32>().ok()? & 7;
    let text = text.lines().next().unwrap_or_default();
    (level <= ERROR || MARKS.iter().any(|mark| text.contains(mark))).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn what_is_a_complaint() {
        let is = |record| complaint(record).is_some();
        assert!(is("4,1,2,-;WARNING: CPU: 0 PID: 1 at x"));
        assert!(is("6,1,2,-;perfctr: a[1]: counts were lost (error -5)"));
        assert!(is("3,1,2,-;anything\n SUBSYSTEM=x"));
        assert!(!is("6,1,2,-;INFO: NMI handler (pmi_nmi [perfctr]) took too long to run"));
        assert!(!is("4,1,2,-;something with ; in it"));
    }
}
