//! What `bench` times: a model, or an op at a shape.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use vkdelegate::{DType, Program, Value, linear_program, quantised_linear_program};

use super::Args;
use crate::tensors;

#[derive(Clone, Copy, ValueEnum)]
pub enum OpArg {
    Linear,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum DTypeArg {
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

    /// Bytes of an activation, and of a weight.
    fn element_bytes(self) -> (f64, f64) {
        match self {
            DTypeArg::F32 => (4.0, 4.0),
            DTypeArg::F16 => (2.0, 2.0),
            DTypeArg::Int8 => (4.0, 1.0),
            DTypeArg::Int4 => (4.0, 0.5),
        }
    }
}

/// Rows, inner dim and columns of a matrix product.
#[derive(Clone, Copy)]
pub struct Shape {
    m: usize,
    k: usize,
    n: usize,
}

impl Shape {
    /// Reads `MxKxN`.
    pub fn parse(text: &str) -> Result<Shape, String> {
        let sizes: Result<Vec<u32>, _> = text.split('x').map(str::parse).collect();
        match sizes.as_deref() {
            Ok(&[m, k, n]) if m > 0 && k > 0 && n > 0 => {
                Ok(Shape { m: m as usize, k: k as usize, n: n as usize })
            }
            _ => Err("three sizes are expected, such as 128x384x1536".to_string()),
        }
    }
}

/// What is timed.
pub struct Subject {
    pub program: Program,
    pub inputs: Vec<Value>,
    /// The file, when it is a model.
    pub path: Option<PathBuf>,
    /// What it is called.
    pub name: String,
    pub shape: String,
    pub dtype: &'static str,
    /// For ops: what one run computes and moves.
    pub work: Option<Work>,
}

/// The work of one run.
pub struct Work {
    /// Multiplications and additions.
    pub flops: f64,
    /// Bytes that have to be read and written once.
    pub bytes: f64,
}

impl Work {
    /// The work of `count` linears one after the other, with K and N in turn.
    fn of_linears(shape: Shape, count: u32, dtype: DTypeArg) -> Work {
        let [m, k, n] = [shape.m, shape.k, shape.n].map(|size| size as f64);
        let (activation_bytes, weight_bytes) = dtype.element_bytes();
        // Every second linear goes from N back to K, and has a bias of that width.
        let back = f64::from(count / 2);
        let forth = f64::from(count) - back;
        let bias_elems = forth * n + back * k;
        let count = f64::from(count);
        Work {
            flops: count * 2.0 * m * k * n,
            bytes: activation_bytes * (count * m * (k + n) + bias_elems) + count * weight_bytes * k * n,
        }
    }
}

impl Subject {
    /// What the arguments ask for.
    pub fn of(args: &Args) -> Result<Subject> {
        match (args.op, args.shape, &args.model) {
            (Some(OpArg::Linear), Some(shape), _) => Subject::linears(shape, args.repeat, args.dtype),
            (_, _, Some(path)) => Subject::model(path, args),
            _ => Err(anyhow!("a model, or --op with --shape, is needed")),
        }
    }

    fn linears(shape: Shape, count: u32, dtype: DTypeArg) -> Result<Subject> {
        let Shape { m, k, n } = shape;
        let repeats = count as usize;
        let program = match dtype {
            DTypeArg::F32 => linear_program(m, k, n, repeats, DType::F32)?,
            DTypeArg::F16 => linear_program(m, k, n, repeats, DType::F16)?,
            DTypeArg::Int8 => quantised_linear_program(m, k, n, repeats, 8)?,
            DTypeArg::Int4 => quantised_linear_program(m, k, n, repeats, 4)?,
        };
        let inputs = program.only_method()?.sample_inputs()?;
        Ok(Subject {
            program,
            inputs,
            path: None,
            name: "linear".to_string(),
            shape: format!("{m}x{k}x{n}"),
            dtype: dtype.as_str(),
            work: Some(Work::of_linears(shape, count, dtype)),
        })
    }

    fn model(path: &Path, args: &Args) -> Result<Subject> {
        let program = args.method.program.open(path)?;
        let method = args.method.method(&program)?;
        let inputs = match &args.inputs {
            Some(file) => method
                .inputs_from_tensors(tensors::read(file)?)
                .with_context(|| file.display().to_string())?,
            None => method.sample_inputs()?,
        };
        let sizes = |tensor: &vkdelegate::HostTensor| {
            tensor.sizes().iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
        };
        let shape = inputs.iter().filter_map(Value::as_tensor).map(sizes).collect::<Vec<_>>().join(",");
        let name = path.display().to_string();
        let dtype = args.method.precision.as_str();
        Ok(Subject { program, inputs, path: Some(path.to_path_buf()), name, shape, dtype, work: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_several_linears_counts_each() {
        let shape = Shape::parse("2x8x4").unwrap();
        let one = Work::of_linears(shape, 1, DTypeArg::F32);
        assert_eq!((one.flops, one.bytes), (128.0, 4.0 * (16.0 + 8.0 + 4.0 + 32.0)));
        let three = Work::of_linears(shape, 3, DTypeArg::Int8);
        assert_eq!(three.flops, 3.0 * 128.0);
        assert_eq!(three.bytes, 4.0 * (3.0 * 24.0 + 4.0 + 8.0 + 4.0) + 3.0 * 32.0);
    }
}
