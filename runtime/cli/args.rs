//! Arguments that several commands share, and what they open.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use vkdelegate::{
    Delegate, DelegateBuilder, DeviceChoice, Gpu, GpuOptions, Int4PackLayout, Precision, Program, Value,
};

use crate::tensors;

/// A program and the delegate to make of it.
#[derive(Args)]
pub struct ModelArgs {
    /// The program, a .pt2 file.
    pub model: PathBuf,
    #[command(flatten)]
    pub delegate: DelegateArgs,
}

impl ModelArgs {
    /// Opens the program, reads with `read` what goes with it, and opens the device: files first, as what is wrong with
    /// them needs no device to be found.
    pub fn open<T>(&self, read: impl FnOnce(&Program) -> Result<T>) -> Result<(Program, T, Gpu)> {
        let program = self.delegate.program.open(&self.model)?;
        let files = read(&program)?;
        Ok((program, files, self.delegate.open_gpu()?))
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

/// What the help calls [`DelegateArgs`].
const DELEGATE: &str = "Method and device";

/// Which method is made ready on which device, and how.
#[derive(Args)]
pub struct DelegateArgs {
    #[command(flatten)]
    pub program: ProgramArgs,
    /// The method; needed when the program has several.
    #[arg(long, value_name = "METHOD", help_heading = DELEGATE)]
    pub method: Option<String>,
    /// How float32 is stored on the device; sums are always 32 bits wide.
    #[arg(long, value_enum, default_value = "f32", help_heading = DELEGATE)]
    pub precision: PrecisionArg,
    /// The device: an index, a part of its name, or its UUID. VKDELEGATE_DEVICE overrides it.
    #[arg(long, value_name = "DEVICE", help_heading = DELEGATE)]
    pub device: Option<String>,
    /// Keep compiled kernels in this folder, for the next start.
    #[arg(long, value_name = "FOLDER", help_heading = DELEGATE)]
    pub cache_dir: Option<PathBuf>,
}

impl DelegateArgs {
    /// Opens the device.
    pub fn open_gpu(&self) -> Result<Gpu> {
        self.open_gpu_with_cache(self.cache_dir.clone())
    }

    /// Opens the device with compiled kernels kept in another folder.
    pub fn open_gpu_with_cache(&self, cache_dir: Option<PathBuf>) -> Result<Gpu> {
        let device = self.device.as_deref().map_or(DeviceChoice::Best, DeviceChoice::parse);
        Ok(Gpu::open(GpuOptions { device, cache_dir, ..GpuOptions::default() })?)
    }

    /// Starts a delegate as the flags say.
    pub fn builder(&self, gpu: &Gpu) -> DelegateBuilder {
        let builder = Delegate::builder(gpu).precision(self.precision.into());
        match &self.method {
            Some(method) => builder.method(method),
            None => builder,
        }
    }

    /// The method of `program` that the flags name.
    fn method<'a>(&self, program: &'a Program) -> vkdelegate::Result<vkdelegate::MethodInfo<'a>> {
        match &self.method {
            Some(name) => program.method(name),
            None => program.only_method(),
        }
    }

    /// The inputs of the method that a file holds.
    pub fn read_inputs(&self, program: &Program, file: &Path) -> Result<Vec<Value>> {
        let method = self.method(program)?;
        method.inputs_from_tensors(tensors::read(file)?).with_context(|| file.display().to_string())
    }

    /// The inputs of the method that a file holds, or made-up ones within the program's ranges.
    pub fn read_or_make_inputs(&self, program: &Program, file: Option<&Path>) -> Result<Vec<Value>> {
        match file {
            Some(file) => self.read_inputs(program, file),
            None => Ok(self.method(program)?.sample_inputs()?),
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
