//! `bench`: how long a model takes, or one op with its weights resident.

use std::{collections::BTreeMap, path::PathBuf, time::Instant};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use serde_json::{Value as Json, json};
use vkdelegate::{DType, Delegate, Gpu, Program, Value, linear_program, quantised_linear_program};

use crate::{
    Verdict,
    args::{DeviceArgs, MethodArgs},
    cpu_time::process_cpu_ms,
    output, tensors,
};

/// Runs that are timed on the device, kernel by kernel.
const PROFILED_RUNS: usize = 3;

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
    /// Shape of the op.
    #[arg(long, value_name = "MxKxN", requires = "op", value_parser = parse_shape)]
    shape: Option<Shape>,
    /// Dtype of the op.
    #[arg(long, value_enum, default_value = "f32", requires = "op")]
    dtype: DTypeArg,
    /// How many runs are timed.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: u32,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    method: MethodArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum OpArg {
    Linear,
}

#[derive(Clone, Copy, ValueEnum)]
enum DTypeArg {
    F32,
    F16,
    /// Activations in f32, weights in 8-bit codes with a scale for each row.
    Int8,
    /// Activations in f32, weights in 4-bit codes with a scale for each 32 columns.
    Int4,
}

impl DTypeArg {
    fn as_str(self) -> &'static str {
        match self {
            DTypeArg::F32 => "f32",
            DTypeArg::F16 => "f16",
            DTypeArg::Int8 => "int8",
            DTypeArg::Int4 => "int4",
        }
    }
}

/// Rows, inner dim and columns of a matrix product.
#[derive(Clone, Copy)]
struct Shape {
    m: usize,
    k: usize,
    n: usize,
}

fn parse_shape(text: &str) -> Result<Shape, String> {
    let sizes: Result<Vec<u32>, _> = text.split('x').map(str::parse).collect();
    match sizes.as_deref() {
        Ok(&[m, k, n]) if m > 0 && k > 0 && n > 0 => {
            Ok(Shape { m: m as usize, k: k as usize, n: n as usize })
        }
        _ => Err("three sizes are expected, such as 128x384x1536".to_string()),
    }
}

/// What is timed.
struct Subject {
    program: Program,
    inputs: Vec<Value>,
    /// `op` or `model`.
    key: &'static str,
    name: String,
    shape: String,
    dtype: &'static str,
    /// For one op: the product whose operations are counted.
    product: Option<Product>,
}

/// One matrix product: its shape, bytes of an activation, and of a weight.
struct Product {
    shape: Shape,
    element_bytes: f64,
    weight_bytes: f64,
}

pub fn run(args: Args) -> Result<Verdict> {
    let gpu = args.device.open()?;
    let started = Instant::now();
    let subject = subject(&args)?;
    let mut delegate = args.method.builder(&gpu).build(&subject.program)?;
    let load_ms = ms_since(started);
    let started = Instant::now();
    delegate.run(&subject.inputs)?;
    let first_run_ms = ms_since(started);
    let times = time_runs(&mut delegate, &subject, args.runs)?;
    let kernels = profile(&args.method, &gpu, &subject)?;
    let document = document(&gpu, &delegate, &subject, &times, &kernels, load_ms, first_run_ms);
    if args.json {
        output::print_json(&document)?;
    } else {
        print_plain(&document, &times, &kernels)?;
    }
    Ok(Verdict::Passed)
}

fn subject(args: &Args) -> Result<Subject> {
    if let (Some(OpArg::Linear), Some(shape)) = (args.op, args.shape) {
        let Shape { m, k, n } = shape;
        let (program, element_bytes, weight_bytes) = match args.dtype {
            DTypeArg::F32 => (linear_program(m, k, n, DType::F32)?, 4.0, 4.0),
            DTypeArg::F16 => (linear_program(m, k, n, DType::F16)?, 2.0, 2.0),
            DTypeArg::Int8 => (quantised_linear_program(m, k, n, 8)?, 4.0, 1.0),
            DTypeArg::Int4 => (quantised_linear_program(m, k, n, 4)?, 4.0, 0.5),
        };
        let inputs = program.only_method()?.sample_inputs()?;
        return Ok(Subject {
            program,
            inputs,
            key: "op",
            name: "linear".to_string(),
            shape: format!("{}x{}x{}", shape.m, shape.k, shape.n),
            dtype: args.dtype.as_str(),
            product: Some(Product { shape, element_bytes, weight_bytes }),
        });
    }
    let path = args.model.as_ref().ok_or_else(|| anyhow!("a model or --op is needed"))?;
    let program = Program::open(path)?;
    let method = args.method.method(&program)?;
    let inputs = match &args.inputs {
        Some(file) => {
            method.inputs_from_tensors(tensors::read(file)?).with_context(|| file.display().to_string())?
        }
        None => method.sample_inputs()?,
    };
    let sizes = |tensor: &vkdelegate::HostTensor| {
        tensor.sizes().iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
    };
    let shape = inputs.iter().filter_map(Value::as_tensor).map(sizes).collect::<Vec<_>>().join(",");
    let name = path.display().to_string();
    let dtype = args.method.precision.as_str();
    Ok(Subject { program, inputs, key: "model", name, shape, dtype, product: None })
}

fn ms_since(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// Times of all runs, shortest first, and CPU time per run.
struct Times {
    wall_ms: Vec<f64>,
    cpu_ms: Option<f64>,
}

impl Times {
    /// The time that `fraction` of the runs do not exceed.
    fn quantile(&self, fraction: f64) -> f64 {
        let last = self.wall_ms.len().saturating_sub(1);
        let index = (fraction * last as f64).round() as usize;
        self.wall_ms.get(index.min(last)).copied().unwrap_or(f64::NAN)
    }
}

fn time_runs(delegate: &mut Delegate, subject: &Subject, runs: u32) -> Result<Times> {
    let bar = output::progress_bar(runs.into());
    let cpu_before = process_cpu_ms();
    let mut wall_ms = Vec::with_capacity(runs as usize);
    for _ in 0..runs {
        let started = Instant::now();
        if subject.product.is_some() {
            delegate.session_mut().repeat()?;
        } else {
            delegate.run(&subject.inputs)?;
        }
        wall_ms.push(ms_since(started));
        bar.inc(1);
    }
    let cpu_ms = cpu_before.zip(process_cpu_ms()).map(|(before, after)| (after - before) / f64::from(runs));
    bar.finish_and_clear();
    wall_ms.sort_by(f64::total_cmp);
    Ok(Times { wall_ms, cpu_ms })
}

/// Launches and time on the device of one kernel in one run; `None` where the device has no timestamps.
struct Kernel {
    name: String,
    count: usize,
    gpu_ms: Option<f64>,
}

fn profile(method: &MethodArgs, gpu: &Gpu, subject: &Subject) -> Result<Vec<Kernel>> {
    let mut delegate = method.builder(gpu).timestamps(true).build(&subject.program)?;
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

fn document(
    gpu: &Gpu,
    delegate: &Delegate,
    subject: &Subject,
    times: &Times,
    kernels: &[Kernel],
    load_ms: f64,
    first_run_ms: f64,
) -> Json {
    let p50 = times.quantile(0.5);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let sizes =
        |product: &Product| [product.shape.m, product.shape.k, product.shape.n].map(|size| size as f64);
    let flops = subject.product.as_ref().map(sizes).map(|[m, k, n]| 2.0 * m * k * n);
    let moved_bytes = subject.product.as_ref().map(|product| {
        let [m, k, n] = sizes(product);
        product.element_bytes * (m * k + n + m * n) + product.weight_bytes * k * n
    });
    let giga_per_second = |amount: Option<f64>, ms: Option<f64>| {
        amount.zip(ms).map_or(Json::Null, |(amount, ms)| output::number(amount / ms / 1e6))
    };
    let gpu_ms: Option<f64> = kernels.iter().map(|kernel| kernel.gpu_ms).sum();
    let description = &gpu.info().description;
    json!({
        "device": description.name,
        "driver": format!("{} {}", description.driver_name, description.driver_info),
        subject.key: subject.name,
        "shape": subject.shape,
        "dtype": subject.dtype,
        "runs": times.wall_ms.len(),
        "wall_ms": {"min": output::number(times.quantile(0.0)), "p50": output::number(p50), "p90": output::number(times.quantile(0.9))},
        "cpu_ms": times.cpu_ms,
        "gpu_ms": gpu_ms,
        "gflops": giga_per_second(flops, Some(p50)),
        "cpu_gflops": giga_per_second(flops, times.cpu_ms.map(|cpu_ms| cpu_ms / cores)),
        "gbps": giga_per_second(moved_bytes, Some(p50)),
        "memory": output::memory_json(&delegate.report().memory),
        "kernels": kernels.iter().map(|kernel| json!({
            "name": kernel.name, "count": kernel.count, "gpu_ms": kernel.gpu_ms,
        })).collect::<Vec<_>>(),
        "load_ms": output::number(load_ms),
        "first_run_ms": output::number(first_run_ms),
    })
}

fn print_plain(document: &Json, times: &Times, kernels: &[Kernel]) -> Result<()> {
    let text = |key: &str| document[key].as_str().unwrap_or_default().to_string();
    let subject = if document.get("op").is_some() { text("op") } else { text("model") };
    output::print(&format!(
        "{subject} {} {}, on {} ({})",
        text("shape"),
        text("dtype"),
        text("device"),
        text("driver")
    ))?;
    output::print(&format!(
        "wall {:.3} ms median of {} (min {:.3}, p90 {:.3}); load {:.1} ms, first run {:.1} ms",
        times.quantile(0.5),
        times.wall_ms.len(),
        times.quantile(0.0),
        times.quantile(0.9),
        document["load_ms"].as_f64().unwrap_or(f64::NAN),
        document["first_run_ms"].as_f64().unwrap_or(f64::NAN),
    ))?;
    if let Some(gflops) = document["gflops"].as_f64() {
        output::print(&format!("{gflops:.2} GFLOP/s"))?;
    }
    for kernel in kernels {
        let time = kernel.gpu_ms.map_or("       -".to_string(), |ms| format!("{ms:8.3}"));
        output::print(&format!("{time} ms {:5} x {}", kernel.count, kernel.name))?;
    }
    Ok(())
}
