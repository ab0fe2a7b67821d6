//! The counts, in the classic format.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use libvperfctr::layout::{CpuControl, SumCtrs};

/// One line for the TSC and one for each counter, and the P4's two registers where they were used.
pub(crate) fn sums(control: &CpuControl, sums: &SumCtrs) -> String {
    let mut text = String::new();
    if control.tsc_on != 0 {
        let _ = writeln!(text, "tsc\t\t\t{:>19}", sums.tsc);
    }
    for i in 0..control.nractrs as usize {
        let _ = write!(text, "event 0x{:08X}", control.evntsel[i]);
        if control.p4.escr[i] != 0 {
            let _ = write!(text, "/0x{:08X}", control.p4.escr[i]);
        }
        let _ = writeln!(text, "\t{:>19}", sums.pmc[i]);
    }
    for (name, value) in
        [("PEBS_ENABLE", control.p4.pebs_enable), ("PEBS_MATRIX_VERT", control.p4.pebs_matrix_vert)]
    {
        if value != 0 {
            let _ = writeln!(text, "{name} 0x{value:08X}");
        }
    }
    text
}

/// Where the counts go. A file is opened before the command runs, so that it is not run in vain.
pub(crate) enum Output {
    Stderr,
    File(File),
}

impl Output {
    pub(crate) fn open(path: Option<&PathBuf>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::Stderr) };
        File::create(path).map(Self::File).with_context(|| path.display().to_string())
    }

    /// One write, so that the counts of commands running side by side don't mix.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().write_all(text.as_bytes()),
            Self::File(file) => file.write_all(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use libvperfctr::{Counter, a_mode};

    use super::*;

    #[test]
    fn the_classic_format() {
        let counters = [
            Counter { evntsel: 0x0041_00C0, escr: 0, pmc: 0 },
            Counter { evntsel: 0xC2, escr: 0x204, pmc: 1 },
        ];
        let mut control = a_mode(true, &counters).unwrap().cpu_control;
        control.p4.pebs_enable = 0x0100_0001;
        let mut counted = SumCtrs { tsc: 12, ..SumCtrs::default() };
        counted.pmc[0] = 4_000_000_123;
        counted.pmc[1] = u64::MAX >> 1;
        assert_eq!(
            sums(&control, &counted),
            "tsc\t\t\t                 12\n\
             event 0x004100C0\t         4000000123\n\
             event 0x000000C2/0x00000204\t9223372036854775807\n\
             PEBS_ENABLE 0x01000001\n"
        );
    }

    #[test]
    fn nothing_counted_nothing_printed() {
        assert_eq!(sums(&CpuControl::default(), &SumCtrs::default()), "");
    }

    #[test]
    fn an_output_that_cannot_be_is_named() {
        let error = Output::open(Some(&PathBuf::from("/nowhere/at/all"))).err().unwrap();
        assert!(format!("{error:#}").contains("/nowhere/at/all: No such file"));
    }
}
