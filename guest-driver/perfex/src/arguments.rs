//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, Parser};
use libvperfctr::Counter;

use crate::event;
use crate::number::Base;

const USAGE: &str = "perfex [OPTIONS] [-e EVENT].. COMMAND [ARGUMENT]..
       perfex -i | -l | -L";

const EXPLANATION: &str = "\
An event is evntsel[/escr][@pmc], three 32-bit numbers of the processor's own:
  evntsel  what to count: the event select register (CCCR on a P4), with
           its enable bit and a privilege level; 0x004100C0 is event 0xC0,
           enabled, in user mode
  escr     the ESCR value (P4 only)
  pmc      which counter to use; by default the events use counters 0 and
           up in the order given; always needed on a P4, and 1 on a VIA C3

Numbers without 0x are read as hexadecimal, with a warning where that
matters; -d and -x settle it.";

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

/// What was asked for.
#[derive(Debug, PartialEq)]
pub(crate) enum Request<'a> {
    Info,
    List,
    LongList,
    Run { events: Vec<Counter>, p4: P4, output: Option<&'a PathBuf>, command: &'a [OsString] },
}

/// Replay tagging, P4 only.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct P4 {
    pub(crate) pebs_enable: u32,
    pub(crate) pebs_matrix_vert: u32,
}

impl Arguments {
    pub(crate) fn from_command_line() -> Result<Self, clap::Error> {
        Self::checked(Self::try_parse()?)
    }

    fn checked(self) -> Result<Self, clap::Error> {
        let refuse = |kind, message| Err(Self::command().error(kind, message));
        let questions = [self.info, self.list, self.long_list].into_iter().filter(|&asked| asked).count();
        match (questions, self.command.is_empty()) {
            (0, true) => refuse(ErrorKind::MissingRequiredArgument, "command missing: say what to run"),
            (1, true) | (0, false) => Ok(self),
            _ => refuse(ErrorKind::ArgumentConflict, "-i, -l, -L and a command exclude one another"),
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
        Ok(Request::Run {
            events: event::parse_all(&self.events, base)?,
            p4: P4 {
                pebs_enable: value(&self.p4_pebs_enable)?,
                pebs_matrix_vert: value(&self.p4_pebs_matrix_vert)?,
            },
            output: self.output.as_ref(),
            command: &self.command,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::checked(Arguments::try_parse_from(std::iter::once(&"perfex").chain(line))?)
    }

    #[test]
    fn options_after_the_command_are_the_commands() {
        let arguments = parse(&["-e", "0x004100C0", "-o", "out", "sleep", "-e", "-x", "--", "1"]).unwrap();
        let Request::Run { events, output, command, .. } = arguments.request().unwrap() else {
            panic!("a command was given")
        };
        assert_eq!(events, [Counter { evntsel: 0x0041_00C0, escr: 0, pmc: 0 }]);
        assert_eq!(output, Some(&PathBuf::from("out")));
        assert_eq!(command, ["sleep", "-e", "-x", "--", "1"]);
    }

    #[test]
    fn events_keep_their_order_and_take_counters_in_it() {
        let arguments = parse(&["-e", "0xC0", "--event=0xC2", "-e0x76", "true"]).unwrap();
        let Request::Run { events, .. } = arguments.request().unwrap() else { panic!() };
        let seen: Vec<_> = events.iter().map(|event| (event.evntsel, event.pmc)).collect();
        assert_eq!(seen, [(0xC0, 0), (0xC2, 1), (0x76, 2)]);
    }

    #[test]
    fn p4_values_have_two_names_each() {
        for line in
            [["--p4pe=0x1000001", "--p4pmv=1"], ["--p4_pebs_enable=0x1000001", "--p4_pebs_matrix_vert=1"]]
        {
            let arguments = parse(&[line[0], line[1], "true"]).unwrap();
            let Request::Run { p4, .. } = arguments.request().unwrap() else { panic!() };
            assert_eq!(p4, P4 { pebs_enable: 0x0100_0001, pebs_matrix_vert: 1 });
        }
    }

    #[test]
    fn the_last_of_d_and_x_wins() {
        for (line, expected) in [(["-d", "-x"], 0x10), (["-x", "-d"], 10)] {
            let arguments = parse(&[line[0], line[1], "-e", "10", "true"]).unwrap();
            let Request::Run { events, .. } = arguments.request().unwrap() else { panic!() };
            assert_eq!(events[0].evntsel, expected);
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
