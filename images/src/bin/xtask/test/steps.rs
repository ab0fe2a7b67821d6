//! The steps of `cargo xtask test`.

use anyhow::{Result, bail};
use images::archive::Archive;
use images::artefact::Key;
use images::layout::Layout;
use images::modules::{self, ModuleSource};
use images::process::Program;
use images::progress;
use images::series::Series;
use images::setup::repository;
use images::{checkpatch, dkms, headers, older, series, sparse};

use super::fuzz;
use super::tally::Tally;
use crate::cargo::{self, cargo};
use crate::setup;

/// One step.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Whether a filter chooses among tests in it.
    pub(super) has_tests: bool,
    pub(super) run: fn(&Context) -> Result<Tally>,
}

/// What all steps work with.
pub(super) struct Context {
    pub(super) layout: Layout,
    pub(super) filter: Option<String>,
    pub(super) list: bool,
}

/// The name of the step that the end-to-end tests need.
pub(super) const IMAGES: &str = "images";

/// All steps in order.
pub(super) const STEPS: [Step; 11] = [
    Step { name: "fmt", what: "every Rust file is formatted", has_tests: false, run: fmt },
    Step { name: "clippy", what: "no warnings from clippy", has_tests: false, run: clippy },
    Step { name: "unit", what: "unit, property and documentation tests", has_tests: true, run: unit },
    Step {
        name: "fuzz",
        what: "what a guest controls, by coverage-guided random input",
        has_tests: false,
        run: |context| fuzz::run(&context.layout),
    },
    Step {
        name: IMAGES,
        what: "kernels, initramfs, the lab machine and older programs are made",
        has_tests: false,
        run: images,
    },
    Step {
        name: "modules",
        what: "C modules build with W=1 without warnings",
        has_tests: false,
        run: kernel_modules,
    },
    Step {
        name: "dkms",
        what: "Debian's dkms builds what `make dkms` gives it",
        has_tests: false,
        run: kernel_packages,
    },
    Step {
        name: "checkpatch",
        what: "the kernel's style checker, --strict",
        has_tests: false,
        run: kernel_style,
    },
    Step { name: "sparse", what: "the kernel's checker of C", has_tests: false, run: kernel_checker },
    Step { name: "e2e", what: "guests in the lab machine, end to end", has_tests: true, run: end_to_end },
    Step {
        name: "bare-in-lab",
        what: "bare-metal guests against the lab's counters",
        has_tests: false,
        run: bare_in_lab,
    },
];

impl Context {
    /// Runs a program whose success is one passed check; what it said is shown when it fails.
    fn check(&self, name: &str, program: Program) -> Result<Tally> {
        let step = progress::Step::begin(name);
        let log = self.layout.log(&format!("test-{name}"));
        let mut said = Vec::new();
        let (success, _) = program.log(log).stream(|line| {
            step.at(line.trim());
            said.push(line.to_owned());
        })?;
        if success {
            step.done("");
            return Ok(Tally::passed(1));
        }
        drop(step);
        println!("{}", said.join("\n"));
        Ok(Tally::failed(name))
    }

    /// Runs tests and counts them. Tests that are over soon are shown only when they fail.
    fn tests(&self, name: &str, program: Program, show_all: bool) -> Result<Tally> {
        self.tests_but(&[], name, program, show_all)
    }

    /// The same, without those with one of these words in their names.
    fn tests_but(&self, skip: &[&str], name: &str, program: Program, show_all: bool) -> Result<Tally> {
        let mut program = program;
        // Of tests that pass too: some say that they could not run here.
        let mut arguments: Vec<&str> = vec!["--show-output"];
        arguments.extend(skip.iter().flat_map(|word| ["--skip", word]));
        arguments.extend(self.filter.as_deref());
        if self.list {
            arguments.push("--list");
        }
        program = program.arg("--").args(arguments);
        let mut output = super::tally::TestOutput::default();
        let log = self.layout.log(&format!("test-{name}"));
        let show_all = show_all && !self.list;
        let step = (!show_all && !self.list).then(|| progress::Step::begin(name));
        let mut quiet = Vec::new();
        let list = self.list;
        let (success, tail) = program.log(log).stream(|line| {
            output.line(line);
            if list {
                if let Some(test) = line.strip_suffix(": test") {
                    println!("    {test}");
                }
            } else if show_all {
                println!("{line}");
            } else if let Some(step) = &step {
                step.at(line.trim());
                let passed = line.starts_with("test ") && line.ends_with("... ok");
                if !passed && !line.trim().is_empty() {
                    quiet.push(line.to_owned());
                }
            }
        })?;
        if self.list && !success {
            bail!("cannot list the tests:\n{}", tail.join("\n"));
        }
        let tally = output.tally(name, success);
        match step {
            Some(step) if tally.failures.is_empty() => step.done(&format!("{} passed", tally.passed)),
            Some(step) => {
                drop(step);
                println!("{}", quiet.join("\n"));
            }
            None => {}
        }
        Ok(tally)
    }
}

fn fmt(context: &Context) -> Result<Tally> {
    context.check("fmt", cargo("fmt").args(["--all", "--check"]))
}

fn clippy(context: &Context) -> Result<Tally> {
    let clippy = |targets: &[&str]| {
        let clippy = cargo("clippy").args(["--release", "--color=never"]).args(targets.iter().copied());
        clippy.args(["--", "--deny=warnings"])
    };
    let mut tally = context.check("clippy", clippy(&["--workspace", "--all-targets"]))?;
    // What `cargo test` leaves out, "all targets" leave out, too.
    tally += context.check("clippy-e2e", clippy(&["--package=tests", "--test=lab"]))?;
    Ok(tally)
}

fn unit(context: &Context) -> Result<Tally> {
    let workspace = cargo("test").args(["--color=never", "--no-fail-fast", "--workspace", "--exclude=tests"]);
    let mut tally = context.tests("unit", workspace, false)?;
    // All but the end-to-end suite, which is a step of its own; of the programs that run in guests, as they run there.
    let workloads = cargo("test").args(["--release", "--color=never", "--no-fail-fast", "--package=tests"]);
    tally += context.tests("unit-tests", workloads, false)?;
    Ok(tally)
}

fn images(context: &Context) -> Result<Tally> {
    cargo::build(&context.layout)?;
    setup::images(context.layout.clone(), false)?;
    older::setup(&context.layout)?;
    Ok(Tally::passed(1))
}

fn kernel_modules(context: &Context) -> Result<Tally> {
    let all: Vec<Series> = series::ALL.into_iter().chain(series::BUILD_ONLY).collect();
    // Built in this run or, from the same sources, in an earlier one that had no warnings either.
    for_each_module(
        context,
        &all,
        "module",
        |_| Ok(()),
        |(), source, series, headers| source.setup(series, &context.layout, headers).map(|_| ()),
    )
}

fn kernel_packages(context: &Context) -> Result<Tally> {
    let setup = |archive: &Archive| dkms::setup(&context.layout, archive);
    for_each_module(context, &series::ALL, "dkms", setup, |dkms, source, series, headers| {
        dkms.check(source, series, &context.layout, headers)
    })
}

/// One check of each module for each series, with a tool that is set up first.
fn for_each_module<Tool>(
    context: &Context,
    all: &[Series],
    name: &str,
    setup: impl Fn(&Archive) -> Result<Tool>,
    check: impl Fn(&Tool, &ModuleSource, &Series, &Key) -> Result<()>,
) -> Result<Tally> {
    let _lock = context.layout.lock()?;
    let archive = Archive::open(&context.layout, false);
    let tool = setup(&archive)?;
    let mut tally = Tally::default();
    for source in modules::all(&repository()) {
        for series in all {
            let headers = headers::setup(series, &context.layout, &archive)?;
            tally += match check(&tool, &source, series, &headers) {
                Ok(()) => Tally::passed(1),
                Err(error) => {
                    println!("{error:#}");
                    Tally::failed(&format!("{name} {} for {}", source.name, series.name))
                }
            };
        }
    }
    Ok(tally)
}

fn kernel_style(context: &Context) -> Result<Tally> {
    let script = checkpatch::setup(&context.layout)?;
    let repository = repository();
    let mut files = Vec::new();
    for source in modules::all(&repository).iter().map(ModuleSource::sources) {
        files.extend(source?.iter().filter_map(|path| Some(path.strip_prefix(&repository).ok()?.to_owned())));
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "c" || extension == "h"));
    // What the modules share.
    files.sort();
    files.dedup();
    let clean = checkpatch::check(&script, &repository, &files, |line| println!("{line}"))?;
    Ok(if clean { Tally::passed(1) } else { Tally::failed("checkpatch") })
}

fn kernel_checker(context: &Context) -> Result<Tally> {
    let setup = |archive: &Archive| sparse::setup(&context.layout, archive);
    for_each_module(context, &series::ALL, "sparse", setup, |sparse, source, series, headers| {
        source.check(series, &context.layout, headers, sparse)
    })
}

fn end_to_end(context: &Context) -> Result<Tally> {
    if !context.list && context.layout.lab().is_none() {
        bail!("there is no lab machine to test in; {}", context.layout.remedy());
    }
    let suite = cargo("test").args(["--release", "--color=never", "--package=tests", "--test=lab"]);
    let mut tally = context.tests("e2e", suite, true)?;
    let launcher =
        cargo("test").args(["--release", "--color=never", "--package=perfvisor", "--test=launcher"]);
    tally += context.tests("launcher", launcher, true)?;
    Ok(tally)
}

/// Of the bare-metal guests those that need counters, and several vCPUs on another KVM than this host's. The others have
/// run here, and each of their many exits takes long in the lab.
fn bare_in_lab(context: &Context) -> Result<Tally> {
    const HERE: [&str; 8] =
        ["pv_", "family_", "hostile_", "kernel_", "lvtpc_", "machine_", "rdpmc_", "run_command_"];
    let bare = cargo("test").args(["--release", "--color=never", "--package=perfvisor", "--test=bare"]);
    let bare = bare
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", repository().join("tests/lab/in-lab.sh"))
        .env("PERFVISOR", cargo::binaries()?.join("perfvisor"));
    context.tests_but(&HERE, "bare", bare, false)
}
