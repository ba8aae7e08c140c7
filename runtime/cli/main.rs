//! The command-line tool: `vkdelegate devices | inspect | run | verify | compare | bench | tune`.
//!
//! Exit codes: 0 when all is well, 1 when a check failed, 2 for bad usage, a bad file, a refused program or a device
//! that fails. Errors go to standard error, one line first.

mod args;
mod bench;
mod compare;
mod cpu_time;
mod devices;
mod inspect;
mod output;
mod run;
mod tensors;
mod tune;
mod verify;

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{ArgAction, Parser, Subcommand};

/// Runs PyTorch programs (what torch.export.save writes) on Vulkan GPUs.
#[derive(Parser)]
#[command(name = "vkdelegate", version, max_term_width = 100)]
struct Cli {
    /// Say more on standard error; twice for debugging.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the Vulkan devices, what they can do, and their drivers.
    Devices(devices::Args),
    /// Show what a build makes of a program: ops, rewrites and their reasons, what cannot run, memory.
    Inspect(inspect::Args),
    /// Run a method on inputs from files.
    Run(run::Args),
    /// Replay recorded calls and compare the outputs with those that PyTorch gave.
    Verify(verify::Args),
    /// Run each node on the device and on the host, and name the first that differs.
    Compare(compare::Args),
    /// Time a model, or one op.
    Bench(bench::Args),
    /// Find the best kernels for a program on a device, and name those that give wrong results.
    Tune(tune::Args),
}

/// What a command found.
enum Verdict {
    /// All is well.
    Passed,
    /// A check failed; the command has said which.
    Failed,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    init_log(cli.verbose);
    let verdict = match cli.command {
        Command::Devices(args) => devices::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Run(args) => run::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Tune(args) => tune::run(args),
    };
    match verdict {
        Ok(Verdict::Passed) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            if let Some(error) = error.downcast_ref::<vkdelegate::Error>() {
                eprintln!("next: {}", error.kind().next_step());
            }
            ExitCode::from(2)
        }
    }
}

/// Warnings are for people: a program that reads standard error finds the error in its first line.
fn init_log(verbose: u8) {
    let level = match verbose {
        0 if std::io::stderr().is_terminal() => log::LevelFilter::Warn,
        0 => log::LevelFilter::Error,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    };
    env_logger::Builder::new().filter_level(level).format_timestamp(None).init();
}
