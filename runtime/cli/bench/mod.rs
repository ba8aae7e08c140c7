//! `bench`: how long a model takes, or ops with their weights resident.

mod report;
mod subject;
mod times;

use std::path::PathBuf;

use anyhow::Result;

use crate::{Verdict, args::DelegateArgs};
use report::Report;
use subject::{DTypeArg, OpArg, Shape, Subject};
use times::{RunTimes, ScratchFolder};

#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["model", "op"])))]
pub struct Args {
    /// The program, a .pt2 file.
    model: Option<PathBuf>,
    /// Inputs, as for `run`; without it, made-up ones within the program's ranges.
    #[arg(long, value_name = "FILE", requires = "model")]
    inputs: Option<PathBuf>,
    /// Time one op instead of a model. Copies between host and device are not counted.
    #[arg(long, value_enum, requires = "shape")]
    op: Option<OpArg>,
    /// Shape of the op: of a linear MxKxN, of a convolution the sizes of its input and weight, and perhaps a stride, such
    /// as 1x64x56x56,64x64x3x3,2.
    #[arg(long, value_name = "SHAPE", requires = "op", value_parser = Shape::parse)]
    shape: Option<Shape>,
    /// Dtype of the op.
    #[arg(long, value_enum, default_value = "f32", requires = "op")]
    dtype: DTypeArg,
    /// Ops in one run, and in one submission: each takes the result of the last, from K to N and back, with weights of
    /// its own. All times are of a whole run.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "op", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeat: u32,
    /// How many runs are timed.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// How many runs go before them, besides the first.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    warm_up: u32,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    delegate: DelegateArgs,
}

pub fn run(args: Args) -> Result<Verdict> {
    let subject = Subject::of(&args)?;
    let scratch = ScratchFolder::new();
    let cache_dir = args.delegate.cache_dir.clone().unwrap_or_else(|| scratch.path());
    let (gpu, mut delegate, cold) = times::load(&args, &subject, cache_dir.clone())?;
    let times = RunTimes::measure(&mut delegate, &subject, &args)?;
    let kernels = times::profile(&args.delegate, &gpu, &subject)?;
    let (device, memory) = (gpu.info().clone(), delegate.report().memory);
    // The device writes its kernels to the folder when it closes.
    drop((delegate, gpu));
    let (_, _, warm) = times::load(&args, &subject, cache_dir)?;
    Report { args: &args, subject: &subject, device, times, kernels, memory, cold, warm }.print()?;
    Ok(Verdict::Passed)
}
