//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use images::layout::Layout;
use images::overlay::CopyRequest;
use vpmu::ModelChoice;

pub use crate::host::pmu_registers::PmuRegisters;
pub use crate::host::source::SourceChoice;

use crate::guest_session::Terminal;
use crate::host_count::Part;
use crate::host_count::choice::{CpuList, EventChoice};
use crate::machine::Module;
use crate::terminal;

/// Launch Linux guests whose virtual CPUs have performance counters that can be trusted.
#[derive(Debug, Parser)]
#[command(name = "perfvisor", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// Run this command in the lab machine: an emulated host with an exact PMU
    #[arg(long, global = true)]
    pub lab: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// This process's command line: what it says, and how it says it.
    ///
    /// # Errors
    /// It cannot be understood, or asks for help.
    pub fn read() -> Result<(Self, ArgMatches), clap::Error> {
        let given = Self::command().try_get_matches()?;
        let cli = Self::from_arg_matches(&given).map_err(|e| e.format(&mut Self::command()))?;
        Ok((cli, given))
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot a guest and run a command in it as root; run a shell if there is no command
    ///
    /// The command has perfvisor's standard input, output and error. The exit status is the command's; 128+N when
    /// signal N killed it, 126 when it cannot be executed, 127 when it is not found, 125 when perfvisor itself fails.
    /// perfvisor passes signals on to the command; three SIGINT or SIGTERM within 5 seconds end the machine.
    ///
    /// A test kernel or unikernel (ELF with a PVH note, or multiboot 1) runs no command. It gets the words of --append
    /// and the files of --module. What it writes to its serial port (0x3F8) goes to standard output. The exit status is
    /// (code << 1 | 1) modulo 256 for a code that it writes to port 0xF4, as with QEMU's isa-debug-exit; 0 for an ACPI
    /// power-off; 125 for a reset or triple fault. The first signal ends it.
    Run(Box<Run>),
    /// Show what every vCPU of a running machine has counted; with --host, what this host's CPUs count
    Dump(Dump),
    /// List the running machines
    List,
    /// Say what this host can do, what is missing, and how to mend it
    Doctor,
    /// Use, query or stop the lab machine
    #[command(subcommand)]
    Lab(Lab),
    /// Print a completion script for a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What to do with the lab machine.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Run a program in the lab machine; start the machine if it does not run
    Exec {
        /// Put a file or directory of this host into the lab machine first, a program with its shared libraries; it
        /// stays there until the machine ends
        #[arg(long = "copy", value_name = "HOSTPATH[:LABPATH]")]
        copies: Vec<CopyRequest>,
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "CMD")]
        argv: Vec<OsString>,
    },
    /// Say whether the lab machine is running
    Status,
    /// End the lab machine, and every guest in it
    Stop,
}

/// Options of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The machine's name, for dump and list [default: vm-PID]
    #[arg(long)]
    pub name: Option<String>,
    /// Number of virtual CPUs
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub vcpus: u32,
    /// Memory of the guest: bytes, or with suffix K, M or G
    #[arg(long, default_value = "512M", value_name = "SIZE")]
    pub memory: Size,
    /// A bzImage, an ELF file with a PVH note, a multiboot 1 image, or 6.1 or 6.12 for a kernel that 'cargo xtask setup'
    /// fetched
    #[arg(long, default_value = "6.12", value_name = "FILE")]
    pub kernel: PathBuf,
    /// An initial RAM disk instead of the one that belongs to the kernel; for a PVH or multiboot kernel, its first module
    #[arg(long, value_name = "FILE")]
    pub initrd: Option<PathBuf>,
    /// A file for a PVH or multiboot kernel, and words that go with it
    #[arg(long = "module", value_name = "FILE[,WORDS]")]
    pub modules: Vec<Module>,
    /// The PMU that the guest sees
    #[arg(long, default_value = "auto", value_name = "MODEL", value_parser = Pmu::parser())]
    pub pmu: Pmu,
    /// Whether to emulate PMU registers, which the guest's own perf uses
    #[arg(long, alias = "msr-door", value_enum, default_value_t = PmuRegisters::On, value_name = "WHEN")]
    pub pmu_registers: PmuRegisters,
    /// Where counts come from
    #[arg(long, value_enum, default_value_t = SourceChoice::Auto)]
    pub source: SourceChoice,
    /// Put a host file or directory into the guest, a program with its shared libraries
    #[arg(long = "copy", value_name = "HOSTPATH[:GUESTPATH]")]
    pub copies: Vec<CopyRequest>,
    /// Write the guest's serial console to a file; '-' is standard error. Without this option the console of a PVH or
    /// multiboot kernel goes to standard output
    #[arg(long, value_name = "FILE")]
    pub console: Option<PathBuf>,
    /// Write the final dump to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Words to add to the kernel's command line
    #[arg(long, value_name = "WORDS")]
    pub append: Option<String>,
    /// Give the command a terminal (a shell has one when perfvisor has)
    #[arg(short, long)]
    pub tty: bool,
    /// Keep all rights of this user, for debugging; otherwise the machine drops them before the guest runs
    #[arg(long)]
    pub no_confinement: bool,
    /// A cpio archive of copied files, made by another perfvisor
    #[arg(long, hide = true)]
    pub overlay: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub argv: Vec<OsString>,
}

impl Run {
    /// The machine's name. The default names this process, which in the lab is not the one that runs the machine, so
    /// that machines of several callers do not clash there.
    pub fn machine_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("vm-{}", std::process::id()))
    }

    /// The series, if the kernel is one that was set up rather than a file.
    pub fn kernel_series(&self) -> Option<&'static str> {
        Layout::series().find(|series| self.kernel.as_os_str() == *series)
    }

    /// Whether there is no command, but a shell.
    pub fn is_shell(&self) -> bool {
        self.argv.is_empty()
    }

    /// Whether what runs gets a terminal.
    pub fn terminal(&self) -> Terminal {
        if self.tty || (self.is_shell() && terminal::on_terminal()) { Terminal::Yes } else { Terminal::No }
    }
}

/// Options of `dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// The machine; optional while only one is running
    pub name: Option<String>,
    /// How to show the counts
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Count whole CPUs of this host instead, whoever runs there; needs root and the kernel module perfctr_host
    #[arg(long, conflicts_with = "name")]
    pub host: bool,
    /// What to count there: instructions, cycles, branches and others, or an event select in hexadecimal; :u counts user
    /// mode only, :k kernel mode only [default: these three]
    #[arg(long = "event", requires = "host", value_name = "EVENT[:u|:k]")]
    pub events: Vec<EventChoice>,
    /// On which CPUs to count, such as 0,2-5 [default: all]
    #[arg(long, requires = "host", value_name = "LIST")]
    pub cpus: Option<CpuList>,
    /// Whose events to count
    #[arg(long, requires = "host", value_enum, default_value_t = Part::All)]
    pub of: Part,
    /// For how long to count
    #[arg(long, requires = "host", default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    pub interval: f64,
}

/// Half a year is as good as for ever.
fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1.5e7).contains(&seconds) => Ok(seconds),
        _ => Err("write a number of seconds, at most 15000000".to_owned()),
    }
}

/// How a dump is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For reading
    Table,
    /// For programs
    Json,
}

/// A guest's PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pmu {
    /// A virtual PMU.
    Model(ModelChoice),
    /// None.
    None,
}

impl Pmu {
    /// Takes the models' keywords, `auto` and `none`; help and completion list them.
    fn parser() -> impl TypedValueParser<Value = Self> {
        let models =
            vpmu::Model::ALL.map(|model| PossibleValue::new(model.facts().keyword).help(model.facts().name));
        let values = [PossibleValue::new("auto").help("The family nearest to the host's")]
            .into_iter()
            .chain(models)
            .chain([PossibleValue::new("none").help("No PMU")]);
        PossibleValuesParser::new(values).try_map(|text| match text.as_str() {
            "none" => Ok(Self::None),
            text => text.parse().map(Self::Model),
        })
    }

    /// Whether counters beyond the TSC may be needed.
    pub fn needs_counters(self) -> bool {
        !matches!(self, Self::None | Self::Model(ModelChoice::Only(vpmu::Model::Generic)))
    }
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a size; write for example 512M or 2G");
        let (digits, shift) = match text.char_indices().next_back() {
            Some((i, 'K' | 'k')) => (&text[..i], 10),
            Some((i, 'M' | 'm')) => (&text[..i], 20),
            Some((i, 'G' | 'g')) => (&text[..i], 30),
            _ => (text, 0),
        };
        let number: u64 = digits.parse().map_err(|_| bad())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        let size = |text: &str| text.parse::<Size>().map(|s| s.0);
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("2g"), Ok(2 << 30));
        assert_eq!(size("4096"), Ok(4096));
        for bad in ["", "M", "-1", "1T", "1.5G", "99999999999G", "é"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_old_name_of_pmu_registers_works_and_is_hidden() {
        for option in ["--pmu-registers", "--msr-door"] {
            let cli = Cli::parse_from(["perfvisor", "run", option, "off"]);
            let Command::Run(run) = cli.command else { panic!("not run") };
            assert_eq!(run.pmu_registers, PmuRegisters::Off, "{option}");
        }
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("run").unwrap().render_long_help().to_string();
        assert!(help.contains("--pmu-registers") && !help.contains("--msr-door"), "{help}");
    }

    #[test]
    fn lab_may_stand_before_and_after_the_command() {
        for line in [["perfvisor", "--lab", "list"], ["perfvisor", "list", "--lab"]] {
            assert!(Cli::parse_from(line).lab);
        }
        let cli = Cli::parse_from(["perfvisor", "run", "--", "ls", "--lab"]);
        assert!(!cli.lab);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.argv, ["ls", "--lab"]);
    }
}
