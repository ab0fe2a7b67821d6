//! Options on the kernel command line.

use std::time::Duration;

/// What the kernel command line asks of this PID 1.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `perfvisor.poweroff_idle=SECONDS`: power off when no session was connected for so long.
    pub poweroff_idle: Option<Duration>,
    /// `perfvisor.hostname=NAME`.
    pub hostname: Option<String>,
    /// The kernel's own `panic=` was given and is left alone.
    pub panic_given: bool,
}

impl Options {
    /// Reads a command line; what cannot be understood is reported, not obeyed.
    pub fn parse(line: &str) -> (Self, Vec<String>) {
        let mut options = Self::default();
        let mut complaints = Vec::new();
        for word in line.split_ascii_whitespace() {
            match word.split_once('=') {
                Some(("perfvisor.poweroff_idle", seconds)) => match seconds.parse() {
                    Ok(seconds) => options.poweroff_idle = Some(Duration::from_secs(seconds)),
                    Err(_) => complaints.push(format!("{word}: give a number of seconds")),
                },
                Some(("perfvisor.hostname", name)) => options.hostname = Some(name.to_owned()),
                Some(("panic", _)) => options.panic_given = true,
                _ if word.starts_with("perfvisor.") => complaints.push(format!("{word}: no such option")),
                _ => {}
            }
        }
        (options, complaints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_its_own_options_only() {
        let (options, complaints) =
            Options::parse("console=ttyS0 quiet panic=-1 perfvisor.poweroff_idle=120 perfvisor.x=1\n");
        assert_eq!(options.poweroff_idle, Some(Duration::from_secs(120)));
        assert!(options.panic_given);
        assert_eq!(complaints, ["perfvisor.x=1: no such option"]);
        assert_eq!(Options::parse("perfvisor.poweroff_idle=soon").0, Options::default());
    }
}
