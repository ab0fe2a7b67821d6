//! `cargo xtask`: makes what perfvisor boots, shows it at work, tests and measures it.

mod bench;
mod cargo;
mod clean;
mod demo;
mod fuzz;
mod setup;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Works on perfvisor: sets it up, shows it at work, tests and measures it.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "What was fetched and built is kept outside the repository, in $PERFVISOR_CACHE, else \
                  $XDG_CACHE_HOME/perfvisor, else ~/.cache/perfvisor. Missing Debian packages are installed when \
                  this is run by root; otherwise it prints the line to run and exits with status 2."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Setup(setup::Arguments),
    Demo(demo::Arguments),
    Test(test::Arguments),
    Bench(bench::Arguments),
    Fuzz(fuzz::Arguments),
    Clean(clean::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Setup(arguments) => setup::run(&arguments).map(|()| true),
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Clean(arguments) => clean::run(&arguments).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            let missing = error.downcast_ref::<images::packages::Missing>().is_some();
            ExitCode::from(if missing { 2 } else { 1 })
        }
    }
}
