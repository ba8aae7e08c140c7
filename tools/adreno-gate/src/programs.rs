//! Programs whose plans show what phones run: models at the sizes that they have there, and everything that the tests of
//! `tests/` hold to PyTorch.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use vkdelegate::{
    DType, HostTensor, Program,
    graph::GraphBuilder,
    ir::{Arg, Method, ValueId},
    linear_program,
    ops::{self, Meta},
    quantised_linear_program,
};

use crate::tests_common::{cases, one_op};

/// Rows of one token, of a few, and of a text.
const ROWS: [usize; 3] = [1, 3, 128];
/// Width, heads and inner width of a small sentence encoder's layer.
const ENCODER: [usize; 3] = [384, 12, 1536];

/// Products, layers and rows at the sizes of models.
pub fn models() -> Result<Vec<Method>> {
    let [width, heads, inner] = ENCODER;
    let mut programs = Vec::new();
    for rows in ROWS {
        programs.push(encoder_layer(rows)?);
        programs.push(linear_program(rows, 37, 53, 1, DType::F32)?);
        for bits in [8, 4] {
            programs.push(quantised_linear_program(rows, width, inner, 1, bits)?);
            programs.push(quantised_activations(rows, bits)?);
        }
    }
    // Few results of long sums.
    programs.push(linear_program(1, 4096, 64, 1, DType::F32)?);
    programs.push(linear_program(16, 4096, 128, 1, DType::F32)?);
    for queries in [1, 128] {
        for head in [width / heads, 64, 128] {
            programs.push(attention(queries, head)?);
        }
    }
    programs.push(product_of_live_matrices()?);
    for (channels, out, kernel, groups) in [(32, 64, 3, 1), (32, 64, 1, 1), (32, 32, 3, 32), (3, 16, 3, 1)] {
        programs.push(convolution(channels, out, kernel, groups)?);
    }
    programs.push(rows_of_numbers()?);
    Ok(programs.iter().flat_map(Program::methods).map(|method| method.ir().clone()).collect())
}

/// Products for which desktops and CPUs have kernels of their own, beside those of the models.
pub fn of_other_devices() -> Result<Vec<Method>> {
    let programs = [
        linear_program(1, 1024, 1024, 1, DType::F32)?,
        linear_program(8, 512, 128, 1, DType::F32)?,
        attention(8, 512)?,
    ];
    Ok(programs.iter().flat_map(Program::methods).map(|method| method.ir().clone()).collect())
}

/// The programs and op cases of the tests.
pub fn tests() -> Result<Vec<Method>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let entries = std::fs::read_dir(folder.join("fixtures")).context("tests/fixtures")?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pt2"));
    paths.sort();
    let mut methods = Vec::new();
    for path in paths {
        let program = Program::open(&path).with_context(|| path.display().to_string())?;
        methods.extend(program.methods().map(|method| method.ir().clone()));
    }
    for (_, cases) in cases::all_in(&folder.join("ops")) {
        for case in cases.iter().filter(|case| case.refused.is_none()) {
            let Some(op) = ops::find(&case.op) else { continue };
            let metas =
                cases::host_args(case).try_map(|tensor| Ok(Meta::new(tensor.dtype(), tensor.sizes())))?;
            methods.push(one_op::one_op(case, &op.infer(&metas)?).method);
        }
    }
    Ok(methods)
}

/// A graph in the making, with weights that all differ.
struct Layers {
    graph: GraphBuilder,
    weights: usize,
}

impl Layers {
    fn new(name: &str) -> Layers {
        Layers { graph: GraphBuilder::new(name), weights: 0 }
    }

    fn finish(mut self, y: ValueId) -> Result<Program> {
        self.graph.output(y);
        Ok(self.graph.build()?)
    }

    fn input(&mut self, name: &str, sizes: &[usize]) -> Result<ValueId> {
        Ok(self.graph.input(name, DType::F32, sizes)?)
    }

    fn weight(&mut self, sizes: &[usize]) -> Result<ValueId> {
        self.weights += 1;
        let values = vec![1.0 / self.weights as f32; sizes.iter().product()];
        Ok(self
            .graph
            .parameter(&format!("weight_{}", self.weights), HostTensor::from_f32(sizes, &values)?)?)
    }

    fn call<const N: usize>(&mut self, op: &str, args: [(&str, Arg); N]) -> Result<ValueId> {
        Ok(self.graph.call(op, args)?)
    }

    fn linear(&mut self, x: ValueId, k: usize, n: usize) -> Result<ValueId> {
        let (weight, bias) = (self.weight(&[n, k])?, self.weight(&[n])?);
        let args = [("input", x.into()), ("weight", weight.into()), ("bias", bias.into())];
        self.call("aten.linear.default", args)
    }

    /// `[1, rows, heads * head]` as `[1, heads, rows, head]`.
    fn heads(&mut self, x: ValueId, rows: usize, heads: usize, head: usize) -> Result<ValueId> {
        let sizes = [1, rows as i64, heads as i64, head as i64];
        let x = self.call("aten.view.default", [("self", x.into()), ("size", sizes.into())])?;
        self.call("aten.permute.default", [("self", x.into()), ("dims", [0, 2, 1, 3].into())])
    }

    fn added_and_normalised(&mut self, x: ValueId, y: ValueId, width: usize) -> Result<ValueId> {
        let sum = self.call("aten.add.Tensor", [("self", x.into()), ("other", y.into())])?;
        let (weight, bias) = (self.weight(&[width])?, self.weight(&[width])?);
        let args = [
            ("input", sum.into()),
            ("normalized_shape", [width as i64].into()),
            ("weight", weight.into()),
            ("bias", bias.into()),
            ("eps", 1e-12.into()),
        ];
        self.call("aten.layer_norm.default", args)
    }
}

fn encoder_layer(rows: usize) -> Result<Program> {
    let [width, heads, inner] = ENCODER;
    let mut layer = Layers::new("encoder_layer");
    let x = layer.input("x", &[1, rows, width])?;
    let mask = layer.input("mask", &[1, 1, 1, rows])?;
    let mut read = [x; 3];
    for value in &mut read {
        let linear = layer.linear(x, width, width)?;
        *value = layer.heads(linear, rows, heads, width / heads)?;
    }
    let [query, key, value] = read.map(Arg::from);
    let args = [("query", query), ("key", key), ("value", value), ("attn_mask", mask.into())];
    let context = layer.call("aten.scaled_dot_product_attention.default", args)?;
    let dims = [0, 2, 1, 3];
    let context = layer.call("aten.permute.default", [("self", context.into()), ("dims", dims.into())])?;
    let sizes = [1, rows as i64, width as i64];
    let context = layer.call("aten.reshape.default", [("self", context.into()), ("shape", sizes.into())])?;
    let y = layer.linear(context, width, width)?;
    let x = layer.added_and_normalised(y, x, width)?;
    let wide = layer.linear(x, width, inner)?;
    let wide = layer.call("aten.gelu.default", [("self", wide.into())])?;
    let y = layer.linear(wide, inner, width)?;
    let y = layer.added_and_normalised(y, x, width)?;
    layer.finish(y)
}

/// A product of activations that have codes of 8 bits, row by row, with a weight in codes of `bits`.
fn quantised_activations(rows: usize, bits: u8) -> Result<Program> {
    let ([k, _, n], mut layer) = (ENCODER, Layers::new("quantised_activations"));
    let (group, most) = if bits == 4 { (32, 7) } else { (k, 127) };
    let x = layer.input("x", &[rows, k])?;
    let scale = layer.input("scale", &[rows, 1])?;
    let args = call_of_codes("output_dtype", x, k, scale, 127);
    let codes = layer.call("torchao.quantize_affine.default", args)?;
    let args = call_of_codes("input_dtype", codes, k, scale, 127);
    let x = layer.call("torchao.dequantize_affine.default", args)?;
    let codes: Vec<i64> = (0..n * k).map(|index| index as i64 % (2 * most) - most).collect();
    let codes = layer.graph.parameter("codes", HostTensor::from_i64s(DType::I8, vec![n, k], &codes)?)?;
    let scale = layer.weight(&[n, k / group])?;
    let args = call_of_codes("input_dtype", codes, group, scale, most);
    let weight = layer.call("torchao.dequantize_affine.default", args)?;
    let y = layer.call("aten.linear.default", [("input", x.into()), ("weight", weight.into())])?;
    layer.finish(y)
}

/// Arguments of a call that makes codes from `-most - 1` to `most`, or numbers of them, in groups of `group`.
fn call_of_codes(
    dtype: &'static str,
    input: ValueId,
    group: usize,
    scale: ValueId,
    most: i64,
) -> [(&'static str, Arg); 7] {
    [
        ("input", input.into()),
        ("block_size", [1, group as i64].into()),
        ("scale", scale.into()),
        ("zero_point", Arg::None),
        (dtype, DType::I8.into()),
        ("quant_min", (-most - 1).into()),
        ("quant_max", most.into()),
    ]
}

fn attention(queries: usize, head: usize) -> Result<Program> {
    let mut layer = Layers::new("attention");
    let query = layer.input("query", &[1, 12, queries, head])?;
    let key = layer.input("key", &[1, 12, 128, head])?;
    let value = layer.input("value", &[1, 12, 128, head])?;
    let args = [("query", query.into()), ("key", key.into()), ("value", value.into())];
    let y = layer.call("aten.scaled_dot_product_attention.default", args)?;
    layer.finish(y)
}

fn product_of_live_matrices() -> Result<Program> {
    let mut layer = Layers::new("product");
    let a = layer.input("a", &[12, 128, 32])?;
    let b = layer.input("b", &[12, 32, 128])?;
    let scores = layer.call("aten.bmm.default", [("self", a.into()), ("mat2", b.into())])?;
    let turned = layer.call("aten.permute.default", [("self", a.into()), ("dims", [0, 2, 1].into())])?;
    let y = layer.call("aten.bmm.default", [("self", scores.into()), ("mat2", a.into())])?;
    let y = layer.call("aten.bmm.default", [("self", y.into()), ("mat2", turned.into())])?;
    layer.finish(y)
}

fn convolution(channels: usize, out: usize, kernel: usize, groups: usize) -> Result<Program> {
    let mut layer = Layers::new("convolution");
    let x = layer.input("x", &[1, channels, 56, 56])?;
    let weight = layer.weight(&[out, channels / groups, kernel, kernel])?;
    let bias = layer.weight(&[out])?;
    let around = kernel as i64 / 2;
    let args = [
        ("input", x.into()),
        ("weight", weight.into()),
        ("bias", bias.into()),
        ("padding", [around, around].into()),
        ("groups", (groups as i64).into()),
    ];
    let y = layer.call("aten.conv2d.default", args)?;
    layer.finish(y)
}

/// What works on whole rows.
fn rows_of_numbers() -> Result<Program> {
    let mut layer = Layers::new("rows");
    let x = layer.input("x", &[128, 1000])?;
    let y = layer.call("aten.softmax.int", [("self", x.into()), ("dim", (-1i64).into())])?;
    layer.graph.output(y);
    let y = layer.call("aten.sum.dim_IntList", [("self", x.into()), ("dim", [-1i64].into())])?;
    layer.finish(y)
}
