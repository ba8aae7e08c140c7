//! What a delegate costs on a device: a run of what was recorded before, and getting ready when everything was compiled
//! before.
//!
//! On Vulkan on the CPU the device is the host: `replay` holds the kernels too, small as they are, and `replay_host` what
//! the driver does on the calling thread. On a GPU the latter is the cost of submitting and of moving a few values.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use vkdelegate::{
    DType, Delegate, Gpu, GpuOptions, HostTensor, Program, Value,
    graph::{Arg, GraphBuilder},
};

/// Dispatches of the programs that are replayed.
const DISPATCHES: [usize; 2] = [1, 100];

/// A delegate whose runs are so many dispatches: softmaxes do not fuse.
fn chain(gpu: &Gpu, dispatches: usize) -> Delegate {
    let mut graph = GraphBuilder::new("chain");
    let mut x = graph.input("x", DType::F32, &[4, 8]).unwrap();
    for step in 0..dispatches {
        let (dim, whole) = (Arg::from((step % 2) as i64), Arg::from(false));
        let args = [("self", x.into()), ("dim", dim), ("half_to_float", whole)];
        x = graph.call("aten._softmax.default", args).unwrap();
    }
    graph.output(x);
    let delegate = Delegate::builder(gpu).build(&graph.build().unwrap()).unwrap();
    let planned: usize = delegate.report().kernels.iter().map(|kernel| kernel.count).sum();
    assert_eq!(planned, dispatches);
    delegate
}

/// CPU time of this thread; `None` where the system does not tell.
fn thread_cpu_time() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

fn replay(criterion: &mut Criterion) {
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    let input = [Value::Tensor(HostTensor::from_f32(&[4, 8], &[0.5; 32]).unwrap())];
    for dispatches in DISPATCHES {
        let mut delegate = chain(&gpu, dispatches);
        delegate.run(&input).unwrap();
        criterion.bench_function(&format!("replay/{dispatches}"), |bencher| {
            bencher.iter(|| delegate.run(&input).unwrap());
        });
        if thread_cpu_time().is_none() {
            continue;
        }
        criterion.bench_function(&format!("replay_host/{dispatches}"), |bencher| {
            bencher.iter_custom(|runs| {
                let before = thread_cpu_time().unwrap();
                (0..runs).for_each(|_| drop(delegate.run(&input).unwrap()));
                thread_cpu_time().unwrap() - before
            });
        });
    }
}

/// A folder that goes away with the value.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn start(criterion: &mut Criterion) {
    let folder = Folder(std::env::temp_dir().join(format!("vkdelegate-bench-start-{}", std::process::id())));
    let options = GpuOptions { cache_dir: Some(folder.0.clone()), ..GpuOptions::default() };
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mini_bert.pt2");
    let program = Program::open(&model).unwrap();
    let gpu = Gpu::open(options.clone()).unwrap();
    let build = |gpu: &Gpu| Delegate::builder(gpu).build(&program).unwrap();
    // The first compiles, and leaves its kernels in the folder.
    drop(build(&gpu));
    let mut group = criterion.benchmark_group("start");
    group.bench_function(BenchmarkId::new("build", "mini_bert"), |bencher| {
        bencher.iter_with_large_drop(|| build(&gpu));
    });
    drop(gpu);
    group.bench_function(BenchmarkId::new("open_and_build", "mini_bert"), |bencher| {
        bencher.iter_custom(|starts| {
            let mut total = Duration::ZERO;
            for _ in 0..starts {
                let started = Instant::now();
                let gpu = Gpu::open(options.clone()).unwrap();
                let delegate = build(&gpu);
                total += started.elapsed();
                drop((delegate, gpu));
            }
            total
        });
    });
}

criterion_group! {
    name = device;
    config = Criterion::default().sample_size(20);
    targets = replay, start
}
criterion_main!(device);
