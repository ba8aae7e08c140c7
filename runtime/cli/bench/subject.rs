//! What `bench` times: a model, or an op at a shape.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use vkdelegate::{DType, Program, Value, convolution_program, linear_program, quantised_linear_program};

use super::Args;

#[derive(Clone, Copy, ValueEnum)]
pub enum OpArg {
    Linear,
    /// A convolution, padded so that at stride 1 odd kernels keep the sizes; groups follow from the channels.
    Conv,
    /// The transpose of one.
    ConvTranspose,
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

/// The sizes of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// `MxKxN`: rows, inner dim and columns of a matrix product.
    Product { m: usize, k: usize, n: usize },
    /// `INPUT,WEIGHT` or `INPUT,WEIGHT,STRIDE`: sizes of the operands of a convolution.
    Conv { input: Vec<usize>, weight: Vec<usize>, stride: usize },
}

impl Shape {
    /// Reads `128x384x1536`, or for a convolution `1x64x56x56,64x64x3x3` or `1x64x56x56,64x64x3x3,2`.
    pub fn parse(text: &str) -> Result<Shape, String> {
        let sizes = |text: &str| -> Option<Vec<usize>> {
            let size = |text: &str| text.parse::<u32>().ok().filter(|&size| size > 0);
            text.split('x').map(|text| Some(size(text)? as usize)).collect()
        };
        let parts: Option<Vec<Vec<usize>>> = text.split(',').map(sizes).collect();
        match parts.unwrap_or_default().as_slice() {
            [product] => match product.as_slice() {
                &[m, k, n] => Some(Shape::Product { m, k, n }),
                _ => None,
            },
            [input, weight, rest @ ..] if input.len() == weight.len() && (3..=5).contains(&input.len()) => {
                let stride = match rest {
                    [] => Some(1),
                    [stride] => stride.first().copied().filter(|_| stride.len() == 1),
                    _ => None,
                };
                stride.map(|stride| Shape::Conv { input: input.clone(), weight: weight.clone(), stride })
            }
            _ => None,
        }
        .ok_or_else(|| {
            "three sizes are expected, such as 128x384x1536, or sizes of input and weight, and perhaps a stride, such as 1x64x56x56,64x64x3x3,2"
                .to_string()
        })
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
    fn of_linears(sizes: [usize; 3], count: u32, dtype: DTypeArg) -> Work {
        let [m, k, n] = sizes.map(|size| size as f64);
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

    /// The work of a convolution of these sizes; of the positions that the kernel has outside the input too.
    fn of_convolution(sizes: [&[usize]; 3], transposed: bool, dtype: DTypeArg) -> Work {
        let numel = |sizes: &[usize]| sizes.iter().map(|&size| size as f64).product::<f64>();
        let [input, weight, output] = sizes;
        // Each element of the side that the kernel slides over meets one kernel a channel of the other.
        let slid = if transposed { input } else { output };
        let (activation_bytes, weight_bytes) = dtype.element_bytes();
        Work {
            flops: 2.0 * numel(slid) * numel(&weight[1..]),
            bytes: activation_bytes * (numel(input) + numel(output)) + weight_bytes * numel(weight),
        }
    }
}

impl Subject {
    /// What the arguments ask for.
    pub fn of(args: &Args) -> Result<Subject> {
        match (args.op, &args.shape, &args.model) {
            (Some(OpArg::Linear), Some(Shape::Product { m, k, n }), _) => {
                Subject::linears([*m, *k, *n], args.repeat, args.dtype)
            }
            (
                Some(op @ (OpArg::Conv | OpArg::ConvTranspose)),
                Some(Shape::Conv { input, weight, stride }),
                _,
            ) => {
                if args.repeat > 1 {
                    return Err(anyhow!("--repeat takes --op linear only"));
                }
                let transposed = matches!(op, OpArg::ConvTranspose);
                Subject::convolution([input, weight], *stride, transposed, args.dtype)
            }
            (Some(OpArg::Linear), Some(_), _) => Err(anyhow!("linear takes a shape such as 128x384x1536")),
            (Some(_), Some(_), _) => Err(anyhow!(
                "a convolution takes a shape such as 1x64x56x56,64x64x3x3, perhaps with a stride behind it"
            )),
            (_, _, Some(path)) => Subject::model(path, args),
            _ => Err(anyhow!("a model, or --op with --shape, is needed")),
        }
    }

    fn linears(sizes: [usize; 3], count: u32, dtype: DTypeArg) -> Result<Subject> {
        let [m, k, n] = sizes;
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
            work: Some(Work::of_linears(sizes, count, dtype)),
        })
    }

    fn convolution(
        [input, weight]: [&[usize]; 2],
        stride: usize,
        transposed: bool,
        dtype: DTypeArg,
    ) -> Result<Subject> {
        let element = match dtype {
            DTypeArg::F32 => DType::F32,
            DTypeArg::F16 => DType::F16,
            DTypeArg::Int8 | DTypeArg::Int4 => return Err(anyhow!("a convolution takes f32 and f16 here")),
        };
        let (program, output) = convolution_program(input, weight, stride, transposed, element)?;
        let inputs = program.only_method()?.sample_inputs()?;
        let text = |sizes: &[usize]| sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        Ok(Subject {
            program,
            inputs,
            path: None,
            name: if transposed { "conv-transpose" } else { "conv" }.to_string(),
            shape: format!("{},{},{stride}", text(input), text(weight)),
            dtype: dtype.as_str(),
            work: Some(Work::of_convolution([input, weight, &output], transposed, dtype)),
        })
    }

    fn model(path: &Path, args: &Args) -> Result<Subject> {
        let program = args.delegate.program.open(path)?;
        let inputs = args.delegate.read_or_make_inputs(&program, args.inputs.as_deref())?;
        let sizes = |tensor: &vkdelegate::HostTensor| {
            tensor.sizes().iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
        };
        let shape = inputs.iter().filter_map(Value::as_tensor).map(sizes).collect::<Vec<_>>().join(",");
        let name = path.display().to_string();
        let dtype = args.delegate.precision.as_str();
        Ok(Subject { program, inputs, path: Some(path.to_path_buf()), name, shape, dtype, work: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_several_linears_counts_each() {
        let shape = [2, 8, 4];
        let one = Work::of_linears(shape, 1, DTypeArg::F32);
        assert_eq!((one.flops, one.bytes), (128.0, 4.0 * (16.0 + 8.0 + 4.0 + 32.0)));
        let three = Work::of_linears(shape, 3, DTypeArg::Int8);
        assert_eq!(three.flops, 3.0 * 128.0);
        assert_eq!(three.bytes, 4.0 * (3.0 * 24.0 + 4.0 + 8.0 + 4.0) + 3.0 * 32.0);
    }

    #[test]
    fn shapes_of_products_and_convolutions_are_told_apart() {
        assert_eq!(Shape::parse("2x8x4"), Ok(Shape::Product { m: 2, k: 8, n: 4 }));
        let conv = |stride| Shape::Conv { input: vec![1, 4, 9], weight: vec![6, 4, 3], stride };
        assert_eq!(Shape::parse("1x4x9,6x4x3"), Ok(conv(1)));
        assert_eq!(Shape::parse("1x4x9,6x4x3,2"), Ok(conv(2)));
        for wrong in ["2x8", "2x0x4", "1x4x9,6x4", "1x4x9,6x4x3,2x2", "1x4x9,6x4x3,2,2", "1x4,6x4", ""] {
            assert!(Shape::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_work_of_a_convolution_counts_every_tap() {
        let work = Work::of_convolution([&[1, 4, 9], &[6, 4, 3], &[1, 6, 9]], false, DTypeArg::F32);
        assert_eq!((work.flops, work.bytes), (2.0 * 54.0 * 12.0, 4.0 * (36.0 + 54.0 + 72.0)));
        let back = Work::of_convolution([&[1, 4, 9], &[4, 6, 3], &[1, 6, 11]], true, DTypeArg::F16);
        assert_eq!((back.flops, back.bytes), (2.0 * 36.0 * 18.0, 2.0 * (36.0 + 66.0 + 72.0)));
    }
}
