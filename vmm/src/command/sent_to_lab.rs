//! What this process sends to the lab machine: where it has it, and the options of a command that runs there.
//!
//! Options go as they were given, found in what clap knows of the command, so that no option can be forgotten. Those that name
//! files are the exception ([`Passage`]).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, Result};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args};
use images::overlay::CopyRequest;
use images::regular_file::RegularFile;

use crate::cli::{Dump, Run};
use crate::guest_session::CopiedFile;
use crate::machine::Module;

/// Below this the lab has what was sent to it.
const SENT: &str = "/perfvisor/sent";

/// Where the lab has what this process sent to it.
pub(super) fn place() -> String {
    format!("{SENT}/{}", process::id())
}

/// What `--copy` names, in a file. Made here: only this host has the files' shared libraries.
pub(super) fn archive(copies: &[CopyRequest], memory: u64) -> Result<tempfile::NamedTempFile> {
    let mut archive = tempfile::NamedTempFile::new().context("temporary file")?;
    archive.write_all(&super::run::copied(copies, memory)?).context("temporary file")?;
    Ok(archive)
}

/// The words for `perfvisor dump` in the lab.
pub(super) fn dump(given: &ArgMatches) -> Vec<OsString> {
    let mut words = Words::new("dump");
    for argument in arguments_of::<Dump>() {
        words.as_given(&argument, given);
    }
    words.all()
}

/// What becomes of an option of `run` on its way into the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    AsGiven,
    /// Given there in any case, for its default is made here.
    Name,
    /// A file, unless the word is the name of a kernel that the lab has too.
    Kernel,
    /// A file.
    Input,
    /// A file, and words for it.
    Modules,
    /// Files, which travel as one archive.
    Copies,
    /// A file that is written; `-` is standard error.
    Output,
}

impl Passage {
    fn of(option: &str) -> Self {
        match option {
            "name" => Self::Name,
            "kernel" => Self::Kernel,
            "initrd" | "overlay" => Self::Input,
            "modules" => Self::Modules,
            "copies" => Self::Copies,
            "console" | "report" => Self::Output,
            _ => Self::AsGiven,
        }
    }
}

/// `perfvisor run` in the lab.
pub(super) struct SentRun {
    /// The words.
    pub(super) arguments: Vec<OsString>,
    /// What it reads.
    pub(super) files: Vec<CopiedFile>,
    /// What it writes: where in the lab, and where that belongs here.
    pub(super) outputs: Vec<(String, PathBuf)>,
    /// Its copied files, for as long as they are sent.
    _archive: Option<tempfile::NamedTempFile>,
}

impl SentRun {
    /// `options` as they were `given`, with other names of files.
    pub(super) fn new(options: &Run, given: &ArgMatches) -> Result<Self> {
        let mut words = Words::new("run");
        let (mut files, mut outputs, mut archived) = (Vec::new(), Vec::new(), None);
        for argument in arguments_of::<Run>() {
            let id = argument.get_id().as_str();
            let first = given_values(&argument, given).into_iter().next();
            match Passage::of(id) {
                Passage::Name => words.option("name", options.machine_name()),
                Passage::Kernel if options.kernel_series().is_none() => {
                    words.option(id, send(&mut files, id, id, &options.kernel)?);
                }
                Passage::AsGiven | Passage::Kernel => words.as_given(&argument, given),
                Passage::Input => {
                    if let Some(host) = first {
                        words.option(id, send(&mut files, id, id, Path::new(&host))?);
                    }
                }
                Passage::Modules => {
                    for (index, module) in options.modules.iter().enumerate() {
                        words.option("module", send_module(&mut files, index, module)?);
                    }
                }
                Passage::Copies if options.copies.is_empty() || options.overlay.is_some() => {}
                Passage::Copies => {
                    let archive = archive(&options.copies, options.memory.0)?;
                    words.option("overlay", send(&mut files, "overlay", "overlay", archive.path())?);
                    archived = Some(archive);
                }
                Passage::Output => match first {
                    Some(host) if id == "console" && host == "-" => words.as_given(&argument, given),
                    Some(host) => {
                        // Found out now rather than after the run.
                        let host = PathBuf::from(host);
                        File::create(&host).with_context(|| format!("{id} {}", host.display()))?;
                        let inside = format!("/tmp/{id}-{}", process::id());
                        words.option(id, &inside);
                        outputs.push((inside, host));
                    }
                    None => {}
                },
            }
        }
        Ok(Self { arguments: words.all(), files, outputs, _archive: archived })
    }
}

/// Add the file `host` to those that go to `folder` in the lab; returns its path there.
fn send(files: &mut Vec<CopiedFile>, name: &str, folder: &str, host: &Path) -> Result<OsString> {
    RegularFile::open(host).with_context(|| format!("{name} {}", host.display()))?;
    // Under its own name, which messages about it will show.
    let file = host.file_name().unwrap_or_default().to_string_lossy();
    let inside = format!("{}/{folder}/{file}", place());
    files.push(CopiedFile { host: host.to_owned(), inside: inside.clone().into() });
    Ok(inside.into())
}

fn send_module(files: &mut Vec<CopiedFile>, index: usize, module: &Module) -> Result<OsString> {
    // Two may have the same name.
    let mut value = send(files, "module", &format!("module{index}"), &module.path)?;
    if !module.words.is_empty() {
        value.push(",");
        value.push(&module.words);
    }
    Ok(value)
}

/// What a command takes, as clap knows it.
fn arguments_of<C: Args>() -> Vec<Arg> {
    C::augment_args(clap::Command::new("")).get_arguments().cloned().collect()
}

/// The values of `argument` on the command line.
fn given_values(argument: &Arg, given: &ArgMatches) -> Vec<OsString> {
    let id = argument.get_id().as_str();
    if given.value_source(id) != Some(ValueSource::CommandLine) {
        return Vec::new();
    }
    given.get_raw(id).into_iter().flatten().map(OsStr::to_owned).collect()
}

/// A command line.
struct Words {
    options: Vec<OsString>,
    /// What stands after `--`, so that nothing of it is taken for an option.
    operands: Vec<OsString>,
}

impl Words {
    fn new(command: &str) -> Self {
        Self { options: vec![command.into()], operands: Vec::new() }
    }

    /// `--name=value`.
    fn option(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        self.options.push(word);
    }

    fn as_given(&mut self, argument: &Arg, given: &ArgMatches) {
        let values = given_values(argument, given);
        match argument.get_long() {
            None => self.operands.extend(values),
            Some(name) if argument.get_action().takes_values() => {
                values.iter().for_each(|value| self.option(name, value));
            }
            Some(name) if !values.is_empty() => self.options.push(format!("--{name}").into()),
            Some(_) => {}
        }
    }

    fn all(mut self) -> Vec<OsString> {
        if !self.operands.is_empty() {
            self.options.push("--".into());
            self.options.append(&mut self.operands);
        }
        self.options
    }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;
    use std::collections::BTreeMap;

    use clap::{CommandFactory, FromArgMatches};

    use super::*;
    use crate::cli::{Cli, Command};

    fn read(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> (Cli, ArgMatches) {
        let given = Cli::command().try_get_matches_from(words).unwrap();
        (Cli::from_arg_matches(&given).unwrap(), given.subcommand().unwrap().1.clone())
    }

    fn run(words: &[OsString]) -> (Run, ArgMatches) {
        let (cli, given) = read([OsString::from("perfvisor")].iter().chain(words));
        let Command::Run(run) = cli.command else { panic!("not run") };
        (*run, given)
    }

    /// A value that is not the default, for each option of `run` that takes one.
    fn values(folder: &Path) -> BTreeMap<&'static str, OsString> {
        let file = |name: &str| {
            let path = folder.join(name);
            std::fs::write(&path, "x").unwrap();
            path.into_os_string()
        };
        let mut module = file("module");
        module.push(",some words");
        let words = [("name", "n"), ("vcpus", "3"), ("memory", "77M"), ("pmu", "k8"), ("source", "perf")];
        let words = words.into_iter().chain([("append", "a=b c"), ("argv", "--tty")]);
        let files = ["kernel", "initrd", "copies", "overlay"].map(|id| (id, file(id)));
        let outputs = ["console", "report"].map(|id| (id, folder.join(id).into_os_string()));
        let registers = arguments_of::<Run>()
            .into_iter()
            .find(|argument| argument.get_value_names().is_some_and(|names| names[0] == "WHEN"));
        let registers = registers.map(|argument| argument.get_id().as_str().to_owned().leak() as &str);
        words
            .map(|(id, word)| (id, word.into()))
            .chain(registers.map(|id| (id, "off".into())))
            .chain(files)
            .chain(outputs)
            .chain([("modules", module)])
            .collect()
    }

    /// The words for each option of `run`, one by one, with what they must become.
    #[test]
    fn every_option_of_run_is_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        let values = values(folder.path());
        for argument in arguments_of::<Run>() {
            let id = argument.get_id().as_str();
            let mut words = Words::new("run");
            match (argument.get_long(), argument.get_action().takes_values()) {
                (Some(name), true) => words.option(name, &values[id]),
                (Some(name), false) => words.options.push(format!("--{name}").into()),
                (None, _) => words.operands.push(values[id].clone()),
            }
            let (before, given) = run(&words.all());
            let sent = SentRun::new(&before, &given).unwrap();
            let (after, _) = run(&sent.arguments);
            assert_eq!(after.machine_name(), before.machine_name());
            let passage = Passage::of(id);
            assert_eq!(
                sent.files.len(),
                usize::from(matches!(
                    passage,
                    Passage::Kernel | Passage::Input | Passage::Modules | Passage::Copies
                )),
                "{id}"
            );
            assert_eq!(sent.outputs.len(), usize::from(passage == Passage::Output), "{id}");
            if let [file] = &sent.files[..] {
                let inside = file.inside.to_str().unwrap();
                assert!(format!("{after:?}").contains(&format!("\"{inside}\"")), "{id}: {after:?}");
            } else if let [(inside, _)] = &sent.outputs[..] {
                assert!(format!("{after:?}").contains(&format!("\"{inside}\"")), "{id}: {after:?}");
            } else {
                let shown = |run: Run| format!("{:?}", Run { name: None, ..run });
                let (after, before) = (shown(after), shown(before));
                assert_eq!(after, before, "{id}");
                let default = shown(run(&[OsString::from("run")]).0);
                assert!(default != before || passage == Passage::Name, "{id}: its value here is the default");
            }
        }
    }

    /// What is of these types names files of this host, which the lab has not.
    #[test]
    fn no_file_is_passed_on_by_its_name_here() {
        let types = [TypeId::of::<PathBuf>(), TypeId::of::<Module>(), TypeId::of::<CopyRequest>()];
        for argument in arguments_of::<Run>() {
            let names_files = types.iter().any(|of| argument.get_value_parser().type_id() == *of);
            let passage = Passage::of(argument.get_id().as_str());
            let as_it_is = matches!(passage, Passage::AsGiven | Passage::Name);
            assert_ne!(names_files, as_it_is, "{argument}: {passage:?}");
        }
    }

    #[test]
    fn what_needs_no_file_goes_as_it_was_given() {
        let words = ["run", "--name=n", "--kernel=6.1", "--console=-", "-t", "--", "--lab", "x"];
        let words = words.map(OsString::from);
        let (options, given) = run(&words);
        let sent = SentRun::new(&options, &given).unwrap();
        let expected = ["run", "--name=n", "--kernel=6.1", "--console=-", "--tty", "--", "--lab", "x"];
        assert_eq!(sent.arguments, expected);
        assert!(sent.files.is_empty() && sent.outputs.is_empty());

        let (_, given) = read([
            "perfvisor",
            "--lab",
            "dump",
            "--host",
            "--cpus",
            "0,2",
            "--event",
            "cycles",
            "--event=0xc0:u",
        ]);
        assert_eq!(dump(&given), ["dump", "--host", "--event=cycles", "--event=0xc0:u", "--cpus=0,2"]);
        let (_, given) = read(["perfvisor", "dump", "--format=json", "--", "--name"]);
        assert_eq!(dump(&given), ["dump", "--format=json", "--", "--name"]);
    }
}
