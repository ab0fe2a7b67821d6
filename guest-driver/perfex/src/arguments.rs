//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser, ValueEnum};

use crate::event::{self, Specifier};
use crate::number::Base;

const USAGE: &str = "perfex [OPTIONS] [-e EVENT].. COMMAND [ARGUMENT]..
       perfex [OPTIONS] [-e EVENT].. -p PID [--for SECONDS]
       perfex -i | -l | -L";

const EXPLANATION: &str = "\
Events, several to an option if separated by commas:
  NAME[:u|:k|:uk][@pmc]    such as instructions:u; -l lists the names. The
                           modifier says at which privilege levels to count:
                           u user, k kernel; without one, both
  rCODE[:u|:k|:uk][@pmc]   any event of the processor: unit mask and event
                           number in hexadecimal, as perf has it: r1c0
  evntsel[/escr][@pmc]     the processor's own 32-bit numbers:
      evntsel  what to count: the event select register (CCCR on a P4),
               with its enable bit and a privilege level; 0x004100C0 is
               event 0xC0, enabled, in user mode
      escr     the ESCR value (P4); bits 32 and up of the event select
               (AMD family 10h and later)
      pmc      which counter to use; by default the events use counters
               0 and up in the order given, or the first free one that
               can count them; numbers always need it on a P4

Numbers without 0x are read as hexadecimal, with a warning where that
matters; -d and -x settle it.

--format json prints one line, an object with these fields; null or an
absent field says that there is nothing to say:
  version     1
  cpu_type, cpu_name        the processor, as perfctr numbers it
  command     its words; null with --pid
  pid         with --pid; null otherwise
  runs        one element, or those of --repeat:
    exit_status             the command's; null if it was killed
    signal                  which killed it
    tsc                     time-stamp cycles; null without that counter
    events                  in the order of the command line:
      name                  as written there
      evntsel, escr, pmc    register values and counter
      count                 with --inherit the sum of the next two
      own, children         with --inherit
    threads                 with --pid: tid, tsc, counts (in that order)
  statistics  with --repeat: tsc, and for each of events: name, with
    mean, stddev (of the sample, n - 1), min, max

Exit status: the command's, of --repeat the first that is not 0; 1 if a
signal killed it; 1 for errors of perfex.";

/// Run a command and print what its performance counters counted.
#[derive(Debug, Parser)]
#[command(name = "perfex", version, override_usage = USAGE, after_help = EXPLANATION)]
pub(crate) struct Arguments {
    /// Count this event; repeat it for more counters.
    #[arg(short, long = "event", value_name = "EVENT", action = ArgAction::Append)]
    events: Vec<String>,
    /// Value for PEBS_ENABLE (P4 only).
    #[arg(long = "p4pe", alias = "p4_pebs_enable", value_name = "VALUE")]
    p4_pebs_enable: Option<String>,
    /// Value for PEBS_MATRIX_VERT (P4 only).
    #[arg(long = "p4pmv", alias = "p4_pebs_matrix_vert", value_name = "VALUE")]
    p4_pebs_matrix_vert: Option<String>,
    /// Write the counts to FILE instead of stderr.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How to write them.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Run the command N times, and print mean and spread.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,
    /// Count the threads and processes it starts as well, once they have ended.
    #[arg(long)]
    inherit: bool,
    /// Count a process that runs already, until it ends or ^C.
    #[arg(short, long, value_name = "PID", conflicts_with = "repeat")]
    pid: Option<i32>,
    /// Stop counting the process after this time.
    #[arg(long = "for", value_name = "SECONDS", requires = "pid", value_parser = seconds)]
    time: Option<Duration>,
    /// Print what the driver says of the processor.
    #[arg(short, long)]
    info: bool,
    /// List the processor's events.
    #[arg(short, long)]
    list: bool,
    /// List them with codes, counters and descriptions.
    #[arg(short = 'L', long)]
    long_list: bool,
    /// Numbers may be decimal: hexadecimal ones need their 0x.
    #[arg(short, long, overrides_with_all = ["decimal", "hex"])]
    decimal: bool,
    /// Numbers are hexadecimal, with or without 0x.
    #[arg(short = 'x', long, overrides_with_all = ["decimal", "hex"])]
    hex: bool,
    /// The command to run, with its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How the counts are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people, as perfex always had them
    #[default]
    Text,
    /// One line for programs
    Json,
}

/// What was asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Request<'a> {
    Info,
    List,
    LongList,
    Count(Counting<'a>),
}

/// What to count, and what to do with the counts.
#[derive(Debug, PartialEq)]
pub(crate) struct Counting<'a> {
    pub(crate) events: Vec<Specifier>,
    pub(crate) p4: P4,
    pub(crate) inherit: bool,
    pub(crate) target: Target<'a>,
    pub(crate) output: Option<&'a PathBuf>,
    pub(crate) format: Format,
}

/// Whose events.
#[derive(Debug, PartialEq)]
pub(crate) enum Target<'a> {
    Command { words: &'a [OsString], repeat: Option<u32> },
    Process { pid: i32, time: Option<Duration> },
}

/// Replay tagging, P4 only.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct P4 {
    pub(crate) pebs_enable: u32,
    pub(crate) pebs_matrix_vert: u32,
}

/// Whole or broken, more than 0.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // Whatever fits a timespec; 2^32 seconds are a century.
    seconds
        .filter(|time| !time.is_zero() && time.as_secs() <= u64::from(u32::MAX))
        .ok_or_else(|| "write a number of seconds above 0, such as 10 or 0.5".to_owned())
}

impl Arguments {
    pub(crate) fn from_command_line() -> Result<Self, clap::Error> {
        Self::checked(Self::try_parse()?)
    }

    fn checked(self) -> Result<Self, clap::Error> {
        let refuse = |kind, message| Err(Self::command().error(kind, message));
        let questions = [self.info, self.list, self.long_list].into_iter().filter(|&asked| asked).count();
        let targets = usize::from(!self.command.is_empty()) + usize::from(self.pid.is_some());
        match (questions, targets) {
            (0, 0) => refuse(ErrorKind::MissingRequiredArgument, "command missing: say what to run"),
            (1, 0) | (0, 1) => Ok(self),
            (0, _) => refuse(ErrorKind::ArgumentConflict, "--pid and a command exclude one another"),
            _ => refuse(ErrorKind::ArgumentConflict, "-i, -l, -L, --pid and a command exclude one another"),
        }
    }

    pub(crate) fn request(&self) -> Result<Request<'_>> {
        if self.info {
            return Ok(Request::Info);
        }
        if self.list || self.long_list {
            return Ok(if self.list { Request::List } else { Request::LongList });
        }
        let base = match (self.decimal, self.hex) {
            (true, _) => Base::AsWritten,
            (_, true) => Base::Hexadecimal { warn: false },
            _ => Base::Hexadecimal { warn: true },
        };
        let value =
            |given: &Option<String>| given.as_deref().map_or(Ok(0), |text| event::whole_number(text, base));
        Ok(Request::Count(Counting {
            events: event::parse_all(&self.events, base)?,
            p4: P4 {
                pebs_enable: value(&self.p4_pebs_enable)?,
                pebs_matrix_vert: value(&self.p4_pebs_matrix_vert)?,
            },
            inherit: self.inherit,
            target: match self.pid {
                Some(pid) => Target::Process { pid, time: self.time },
                None => Target::Command { words: &self.command, repeat: self.repeat },
            },
            output: self.output.as_ref(),
            format: self.format,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::What;

    fn parse(line: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::checked(Arguments::try_parse_from(std::iter::once(&"perfex").chain(line))?)
    }

    fn counting(arguments: &Arguments) -> Counting<'_> {
        match arguments.request().unwrap() {
            Request::Count(counting) => counting,
            other => panic!("{other:?}"),
        }
    }

    fn registers(counting: &Counting<'_>) -> Vec<u32> {
        let value = |specifier: &Specifier| match specifier.what {
            What::Registers { evntsel, .. } => evntsel,
            _ => panic!("{specifier:?}"),
        };
        counting.events.iter().map(value).collect()
    }

    #[test]
    fn options_after_the_command_are_the_commands() {
        let arguments = parse(&["-e", "0x004100C0", "-o", "out", "sleep", "-e", "-x", "--", "1"]).unwrap();
        let counting = counting(&arguments);
        assert_eq!(registers(&counting), [0x0041_00C0]);
        assert_eq!(counting.output, Some(&PathBuf::from("out")));
        let Target::Command { words, repeat: None } = counting.target else { panic!() };
        assert_eq!(words, ["sleep", "-e", "-x", "--", "1"]);
    }

    #[test]
    fn events_keep_their_order() {
        let arguments = parse(&["-e", "0xC0,0x40", "--event=0xC2", "-e0x76", "true"]).unwrap();
        assert_eq!(registers(&counting(&arguments)), [0xC0, 0x40, 0xC2, 0x76]);
    }

    #[test]
    fn p4_values_have_two_names_each() {
        for line in
            [["--p4pe=0x1000001", "--p4pmv=1"], ["--p4_pebs_enable=0x1000001", "--p4_pebs_matrix_vert=1"]]
        {
            let arguments = parse(&[line[0], line[1], "true"]).unwrap();
            assert_eq!(counting(&arguments).p4, P4 { pebs_enable: 0x0100_0001, pebs_matrix_vert: 1 });
        }
    }

    #[test]
    fn the_last_of_d_and_x_wins() {
        for (line, expected) in [(["-d", "-x"], 0x10), (["-x", "-d"], 10)] {
            let arguments = parse(&[line[0], line[1], "-e", "10", "true"]).unwrap();
            assert_eq!(registers(&counting(&arguments)), [expected]);
        }
    }

    #[test]
    fn a_process_can_be_the_target() {
        let arguments = parse(&["-p", "12", "--for", "0.5", "--format", "json", "--inherit"]).unwrap();
        let counting = counting(&arguments);
        let half = Some(Duration::from_millis(500));
        assert_eq!(counting.target, Target::Process { pid: 12, time: half });
        assert_eq!((counting.format, counting.inherit), (Format::Json, true));
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for line in [
            ["-r", "0", "true"].as_slice(),
            &["-r", "x", "true"],
            &["-p", "x"],
            &["-p", "1", "--for", "0"],
            &["-p", "1", "--for", "-1"],
            &["-p", "1", "--for", "nan"],
            &["-p", "1", "--for", "1e300"],
            &["--for", "1", "true"],
            &["-p", "1", "-r", "2"],
            &["-p", "1", "true"],
            &["--format", "xml", "true"],
        ] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn questions_need_no_command_and_everything_else_does() {
        assert_eq!(parse(&["-i"]).unwrap().request().unwrap(), Request::Info);
        assert_eq!(parse(&["--list"]).unwrap().request().unwrap(), Request::List);
        assert_eq!(parse(&["-L"]).unwrap().request().unwrap(), Request::LongList);
        assert!(parse(&[]).unwrap_err().to_string().contains("command missing"));
        assert!(parse(&["-e", "0xC0"]).unwrap_err().to_string().contains("command missing"));
        assert!(parse(&["-i", "-l"]).unwrap_err().to_string().contains("exclude"));
        assert!(parse(&["-i", "true"]).unwrap_err().to_string().contains("exclude"));
    }
}
