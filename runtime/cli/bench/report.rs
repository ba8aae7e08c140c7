//! What `bench` tells: a table for people, one JSON document for programs.

use anyhow::Result;
use serde_json::{Value as Json, json};
use vkdelegate::{DeviceInfo, MemoryReport};

use super::{
    Args,
    subject::Subject,
    times::{Kernel, LoadTimes, RunTimes},
};
use crate::output;

/// All figures of one subject on one device.
pub struct Report<'a> {
    pub args: &'a Args,
    pub subject: &'a Subject,
    pub device: DeviceInfo,
    pub times: RunTimes,
    pub kernels: Vec<Kernel>,
    pub memory: MemoryReport,
    pub cold: LoadTimes,
    pub warm: LoadTimes,
}

impl Report<'_> {
    pub fn print(&self) -> Result<()> {
        if self.args.json { output::print_json(&self.json()) } else { output::print(&self.table()) }
    }

    fn gpu_ms(&self) -> Option<f64> {
        self.kernels.iter().map(|kernel| kernel.gpu_ms).sum()
    }

    /// CPU time spread over all cores: what the work takes where nothing else runs.
    fn cpu_ms_a_core(&self) -> Option<f64> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        self.times.cpu_ms.map(|cpu_ms| cpu_ms / cores)
    }

    /// Operations per second in units of 1e9, when a run takes `ms`.
    fn gflops(&self, ms: Option<f64>) -> Option<f64> {
        self.subject.work.as_ref().zip(ms).map(|(work, ms)| work.flops / ms / 1e6)
    }

    fn gbps(&self) -> Option<f64> {
        self.subject.work.as_ref().map(|work| work.bytes / self.times.quantile(0.5) / 1e6)
    }

    fn json(&self) -> Json {
        let Report { args, subject, times, .. } = self;
        let p50 = times.quantile(0.5);
        let optional = |value: Option<f64>| value.map_or(Json::Null, output::number);
        let kernels = self.kernels.iter().map(
            |kernel| json!({"name": kernel.name, "count": kernel.count, "gpu_ms": optional(kernel.gpu_ms)}),
        );
        let description = &self.device.description;
        json!({
            "device": description.name,
            "driver": format!("{} {}", description.driver_name, description.driver_info),
            if subject.path.is_some() { "model" } else { "op" }: subject.name,
            "shape": subject.shape,
            "dtype": subject.dtype,
            "repeat": args.repeat,
            "warm_up": args.warm_up,
            "runs": times.wall_ms.len(),
            "wall_ms": {
                "min": output::number(times.quantile(0.0)),
                "p50": output::number(p50),
                "p90": output::number(times.quantile(0.9)),
            },
            "cpu_ms": optional(times.cpu_ms),
            "gpu_ms": optional(self.gpu_ms()),
            "gflops": optional(self.gflops(Some(p50))),
            "cpu_gflops": optional(self.gflops(self.cpu_ms_a_core())),
            "gbps": optional(self.gbps()),
            "memory": output::memory_json(&self.memory),
            "kernels": kernels.collect::<Vec<_>>(),
            "open_ms": output::number(self.cold.open_ms),
            "load_ms": output::number(self.cold.load_ms),
            "first_run_ms": output::number(self.cold.first_run_ms),
            "warm": {
                "open_ms": output::number(self.warm.open_ms),
                "load_ms": output::number(self.warm.load_ms),
                "first_run_ms": output::number(self.warm.first_run_ms),
            },
        })
    }

    fn table(&self) -> String {
        let Report { args, subject, times, .. } = self;
        let count = if args.repeat > 1 { format!("{} x ", args.repeat) } else { String::new() };
        let device = output::device_line(&self.device);
        let mut lines =
            vec![format!("{count}{} {} {}, on {device}", subject.name, subject.shape, subject.dtype)];
        let ms = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.3} ms"));
        let mut row = |name: &str, text: String| lines.push(format!("  {name:<8}{text}"));
        row(
            "wall",
            format!(
                "{:.3} ms median of {} runs behind {} to warm up (min {:.3}, p90 {:.3})",
                times.quantile(0.5),
                times.wall_ms.len(),
                args.warm_up,
                times.quantile(0.0),
                times.quantile(0.9)
            ),
        );
        row("cpu", format!("{} a run", ms(times.cpu_ms)));
        row("gpu", format!("{} a run, by timestamps", ms(self.gpu_ms())));
        if let Some((gflops, gbps)) = self.gflops(Some(times.quantile(0.5))).zip(self.gbps()) {
            let by_cpu = self.gflops(self.cpu_ms_a_core());
            let by_cpu = by_cpu.map_or(String::new(), |by_cpu| format!(" ({by_cpu:.2} by CPU time / cores)"));
            row("rate", format!("{gflops:.2} GFLOP/s{by_cpu}, {gbps:.2} GB/s"));
        }
        row("memory", output::memory_line(&self.memory));
        row("cold", self.cold.to_string());
        row("warm", self.warm.to_string());
        for kernel in &self.kernels {
            let time = kernel.gpu_ms.map_or("       -".to_string(), |ms| format!("{ms:8.3}"));
            lines.push(format!("{time} ms {:5} x {}", kernel.count, kernel.name));
        }
        lines.join("\n")
    }
}

impl std::fmt::Display for LoadTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LoadTimes { open_ms, load_ms, first_run_ms } = self;
        write!(f, "device {open_ms:.1} ms, load {load_ms:.1} ms, first run {first_run_ms:.1} ms")
    }
}
