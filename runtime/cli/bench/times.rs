//! The clocks of `bench`: opening and loading, runs, and kernels on the device.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use anyhow::Result;
use vkdelegate::{Delegate, Gpu, Program};

use super::{Args, subject::Subject};
use crate::{args::DelegateArgs, cpu_time::process_cpu_ms, output};

/// Runs that are timed on the device, kernel by kernel.
const PROFILED_RUNS: usize = 3;

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// Milliseconds from nothing to the first result.
pub struct LoadTimes {
    /// Until the device is open.
    pub open_ms: f64,
    /// From the file, or the program of an op, to a delegate.
    pub load_ms: f64,
    pub first_run_ms: f64,
}

/// Opens the device with its compiled kernels in `cache_dir`, loads what is timed, and runs it once.
pub fn load(args: &Args, subject: &Subject, cache_dir: PathBuf) -> Result<(Gpu, Delegate, LoadTimes)> {
    let started = Instant::now();
    let gpu = args.delegate.open_gpu_with_cache(Some(cache_dir))?;
    let open_ms = ms_since(started);
    let started = Instant::now();
    let opened: Option<Program> =
        subject.path.as_ref().map(|path| args.delegate.program.open(path)).transpose()?;
    let mut delegate = args.delegate.builder(&gpu).build(opened.as_ref().unwrap_or(&subject.program))?;
    let load_ms = ms_since(started);
    let started = Instant::now();
    delegate.run(&subject.inputs)?;
    let times = LoadTimes { open_ms, load_ms, first_run_ms: ms_since(started) };
    Ok((gpu, delegate, times))
}

/// Times of all runs, shortest first, and CPU time per run.
pub struct RunTimes {
    pub wall_ms: Vec<f64>,
    pub cpu_ms: Option<f64>,
}

impl RunTimes {
    /// Times `args.runs` runs behind `args.warm_up` that are not timed. Those of an op leave its input where it is on
    /// the device, and its result there.
    pub fn measure(delegate: &mut Delegate, subject: &Subject, args: &Args) -> Result<RunTimes> {
        let mut run = || -> vkdelegate::Result<()> {
            if subject.work.is_some() {
                delegate.session_mut().repeat(&subject.inputs)
            } else {
                delegate.run(&subject.inputs).map(drop)
            }
        };
        for _ in 0..args.warm_up {
            run()?;
        }
        let bar = output::progress_bar(args.runs.into());
        let cpu_before = process_cpu_ms();
        let mut wall_ms = Vec::with_capacity(args.runs as usize);
        for _ in 0..args.runs {
            let started = Instant::now();
            run()?;
            wall_ms.push(ms_since(started));
            bar.inc(1);
        }
        let cpu_ms =
            cpu_before.zip(process_cpu_ms()).map(|(before, after)| (after - before) / f64::from(args.runs));
        bar.finish_and_clear();
        wall_ms.sort_by(f64::total_cmp);
        Ok(RunTimes { wall_ms, cpu_ms })
    }

    /// The time that `fraction` of the runs do not exceed.
    pub fn quantile(&self, fraction: f64) -> f64 {
        let last = self.wall_ms.len().saturating_sub(1);
        let index = (fraction * last as f64).round() as usize;
        self.wall_ms.get(index.min(last)).copied().unwrap_or(f64::NAN)
    }
}

/// Launches and time on the device of one kernel in one run; `None` where the device has no timestamps.
pub struct Kernel {
    pub name: String,
    pub count: usize,
    pub gpu_ms: Option<f64>,
}

/// Runs with a timestamp behind each launch, apart from the runs that are timed as a whole.
pub fn profile(args: &DelegateArgs, gpu: &Gpu, subject: &Subject) -> Result<Vec<Kernel>> {
    let mut delegate = args.builder(gpu).timestamps(true).build(&subject.program)?;
    let mut totals: BTreeMap<String, f64> = BTreeMap::new();
    let mut timed = false;
    for _ in 0..PROFILED_RUNS {
        delegate.run(&subject.inputs)?;
        for time in delegate.dispatch_times() {
            timed = true;
            *totals.entry(time.kernel).or_default() += time.gpu_ms / PROFILED_RUNS as f64;
        }
    }
    let mut kernels: Vec<Kernel> = delegate
        .report()
        .kernels
        .into_iter()
        .map(|kernel| Kernel {
            gpu_ms: timed.then(|| totals.get(&kernel.name).copied().unwrap_or(0.0)),
            name: kernel.name,
            count: kernel.count,
        })
        .collect();
    kernels.sort_by(|a, b| b.gpu_ms.unwrap_or(0.0).total_cmp(&a.gpu_ms.unwrap_or(0.0)));
    Ok(kernels)
}

/// A folder for compiled kernels that goes away with the value.
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// A folder of this process; it comes to be when something is written to it.
    pub fn new() -> ScratchFolder {
        ScratchFolder(std::env::temp_dir().join(format!("vkdelegate-bench-{}", std::process::id())))
    }

    pub fn path(&self) -> PathBuf {
        self.0.clone()
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // It may never have come to be; what a system does not let go of, it clears from its temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
