//! Flags that several commands share.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use vkdelegate::{
    Delegate, DelegateBuilder, DeviceChoice, Gpu, GpuOptions, Int4PackLayout, Precision, Program,
};

/// Which device, and where compiled kernels are kept.
#[derive(Args)]
pub struct DeviceArgs {
    /// The device: an index, a part of its name, or its UUID. VKDELEGATE_DEVICE overrides it.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Keep compiled kernels in this folder, for the next start.
    #[arg(long, value_name = "FOLDER")]
    pub cache_dir: Option<PathBuf>,
}

impl DeviceArgs {
    /// Opens the device.
    pub fn open(&self) -> Result<Gpu> {
        self.open_with_cache(self.cache_dir.clone())
    }

    /// Opens the device with compiled kernels kept in another folder.
    pub fn open_with_cache(&self, cache_dir: Option<PathBuf>) -> Result<Gpu> {
        let device = self.device.as_deref().map_or(DeviceChoice::Best, DeviceChoice::parse);
        Ok(Gpu::open(GpuOptions { device, cache_dir, ..GpuOptions::default() })?)
    }
}

/// What the file does not say of a program.
#[derive(Args)]
pub struct ProgramArgs {
    /// What torch.backends.cpu.get_cpu_capability() gave on the machine that packed the weights of
    /// aten._weight_int4pack_mm_for_cpu.
    #[arg(long, value_enum, value_name = "CPU")]
    pub int4pack_layout: Option<Int4PackLayoutArg>,
}

impl ProgramArgs {
    /// Opens the program.
    pub fn open(&self, model: &Path) -> vkdelegate::Result<Program> {
        let program = Program::open(model)?;
        Ok(match self.int4pack_layout {
            Some(layout) => program.int4pack_layout(layout.into()),
            None => program,
        })
    }
}

/// `--int4pack-layout`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Int4PackLayoutArg {
    /// AVX512.
    Avx512,
    /// AVX2.
    Avx2,
    /// DEFAULT on x86.
    Scalar,
}

impl From<Int4PackLayoutArg> for Int4PackLayout {
    fn from(layout: Int4PackLayoutArg) -> Int4PackLayout {
        match layout {
            Int4PackLayoutArg::Avx512 => Int4PackLayout::Avx512,
            Int4PackLayoutArg::Avx2 => Int4PackLayout::Avx2,
            Int4PackLayoutArg::Scalar => Int4PackLayout::Scalar,
        }
    }
}

/// Which method, and how it is built.
#[derive(Args)]
pub struct MethodArgs {
    #[command(flatten)]
    pub program: ProgramArgs,
    /// The method; needed when the program has several.
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// How float32 is stored on the device; sums are always 32 bits wide.
    #[arg(long, value_enum, default_value = "f32")]
    pub precision: PrecisionArg,
}

impl MethodArgs {
    /// Starts a delegate as the flags say.
    pub fn builder(&self, gpu: &Gpu) -> DelegateBuilder {
        let builder = Delegate::builder(gpu).precision(self.precision.into());
        match &self.method {
            Some(method) => builder.method(method),
            None => builder,
        }
    }

    /// The method of `program` that the flags name.
    pub fn method<'a>(&self, program: &'a Program) -> vkdelegate::Result<vkdelegate::MethodInfo<'a>> {
        match &self.method {
            Some(name) => program.method(name),
            None => program.only_method(),
        }
    }
}

/// `--precision`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PrecisionArg {
    /// 32 bits.
    F32,
    /// 16 bits.
    F16,
}

impl From<PrecisionArg> for Precision {
    fn from(precision: PrecisionArg) -> Precision {
        match precision {
            PrecisionArg::F32 => Precision::F32,
            PrecisionArg::F16 => Precision::F16,
        }
    }
}

impl PrecisionArg {
    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            PrecisionArg::F32 => "f32",
            PrecisionArg::F16 => "f16",
        }
    }
}
