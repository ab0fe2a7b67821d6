//! `cargo xtask`: makes what perfvisor boots, shows it at work, and tests it.

mod setup;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Works on perfvisor: sets it up, shows it, tests it.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fetch guest kernels, build the modules, the images and the lab machine.
    Setup(setup::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Setup(arguments) => setup::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            let missing = error.downcast_ref::<images::packages::Missing>().is_some();
            ExitCode::from(if missing { 2 } else { 1 })
        }
    }
}
