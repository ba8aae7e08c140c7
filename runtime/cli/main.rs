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

/// What the help says behind the commands.
const AFTER_HELP: &str = "\
Examples:
  vkdelegate devices
  vkdelegate inspect model.pt2
  vkdelegate run model.pt2 --inputs inputs.npz --outputs outputs.npz
  vkdelegate verify model.pt2 reference.safetensors
  vkdelegate bench --op linear --shape 128x768x768

Exit status: 0 fine; 1 a check failed; 2 bad usage, a bad file, a refused program or a device failure.

Environment:
  VKDELEGATE_DEVICE      the device, whatever --device says
  VKDELEGATE_VALIDATION  1 turns the Vulkan validation layer on, sync its checks of barriers too
  VKDELEGATE_ACCESS      ssbo or bda: how kernels reach their buffers
  VKDELEGATE_CLASS       plan as for a device of this class of `vkdelegate devices`";

/// Runs PyTorch programs (what torch.export.save writes) on Vulkan GPUs.
#[derive(Parser)]
#[command(name = "vkdelegate", version, max_term_width = 100, after_help = AFTER_HELP)]
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
    ///
    /// One run for each --inputs, in order, on one delegate: buffers that the program writes keep their values from run
    /// to run.
    Run(run::Args),
    /// Replay recorded calls and compare the outputs with those that PyTorch gave.
    ///
    /// Call i of method METHOD is METHOD.inv{i}.in{j} for its inputs, .out{j} for its outputs, .mut{j} for inputs that it
    /// changes and .buf.NAME for the values of buffers behind it. The method of a program that has one is `model`. Every
    /// output must have its reference, and every reference its output.
    Verify(verify::Args),
    /// Run each node on the device and on the host, and name the first that differs.
    ///
    /// Each node is given what the device computed before it, so a difference is its own. Fused groups follow as wholes.
    Compare(compare::Args),
    /// Time a model, or one op.
    ///
    /// Loading is timed twice: cold, with no compiled kernels but those of --cache-dir, and warm, with what the cold one
    /// left. Drivers may keep caches of their own besides.
    Bench(bench::Args),
    /// Find the best kernels for a program on a device, and name those that give wrong results.
    ///
    /// Every candidate is checked before it is timed: several runs with the same bits, the bits of other work-group shapes
    /// of its kernel, and the host's result. Wrong ones are never used again, and are a failed check.
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
