//! Norms over rows: `y = (x - mean) / sqrt(var + eps) * weight + bias` (layer and group norm), and
//! `y = x / sqrt(mean(x^2) + eps) * weight` (RMS norm). The variance is that of the whole row, not of a sample.
//!
//! `aten.native_layer_norm`, `aten.layer_norm`, `aten.rms_norm`, `aten._fused_rms_norm`, `aten.native_group_norm`,
//! `aten.group_norm`. float16, bfloat16 and float32, computed in float32 in two passes. Weight and bias may be constants or
//! run-time data, and of another dtype than the input; then everything is computed in float32.

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    reduce::{self, Function},
    rows::{self, RowSplit},
};
use crate::{
    base::{DType, Error, HostTensor, Result, shape},
    shader::kernels::normalize as kernel,
};

/// The layer, group and RMS norms.
pub struct Norm;

impl Op for Norm {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten._fused_rms_norm.default",
            "aten.group_norm.default",
            "aten.layer_norm.default",
            "aten.native_group_norm.default",
            "aten.native_layer_norm.default",
            "aten.rms_norm.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = args.tensor("input")?;
        let rows = Rows::read(args, &x.sizes)?;
        for name in ["input", "weight", "bias"] {
            let Some(tensor) = args.opt_tensor(name)? else { continue };
            if !tensor.dtype.is_float() || tensor.dtype == DType::F64 {
                let message = format!("a norm of {} has no kernel; use float32 or float16", tensor.dtype);
                return Err(Error::unsupported(message).at_operand(name));
            }
            if name != "input" && tensor.sizes != rows.affine_sizes {
                let message = format!("has sizes {:?} where {:?} are due", tensor.sizes, rows.affine_sizes);
                return Err(Error::invalid_input(message).at_operand(name));
            }
        }
        let mut outs = vec![x.clone()];
        let stats_dtype = if rows.op == kernel::Op::RmsNorm { DType::F32 } else { x.dtype };
        outs.extend(rows.stats(args).iter().map(|_| Meta::new(stats_dtype, rows.stats_sizes.clone())));
        Ok(outs)
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let x = args.tensor("input")?;
        let rows = Rows::read(args, x.sizes())?;
        let affine = |name| -> Result<_> { Ok(args.opt_tensor(name)?.map(HostTensor::to_f64s)) };
        let (weight, bias): (Option<Vec<f64>>, Option<Vec<f64>>) = (affine("weight")?, affine("bias")?);
        let mut values = x.to_f64s();
        let mut stats = Vec::with_capacity(rows.count);
        for (row, values) in values.chunks_mut(rows.len.max(1)).enumerate() {
            let (mean, scale) = rows.mean_and_scale(values);
            stats.push((mean, scale));
            for (column, v) in values.iter_mut().enumerate() {
                let channel = rows.channel(row, column);
                *v = (*v - mean) * scale * weight.as_ref().map_or(1.0, |weight| weight[channel])
                    + bias.as_ref().map_or(0.0, |bias| bias[channel]);
            }
        }
        stats.resize(rows.count, rows.mean_and_scale(&[]));
        let mut results = vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &values)?];
        for (function, out) in rows.stats(args).into_iter().zip(&outs[1..]) {
            let pick = |&(mean, scale): &(f64, f64)| if function == Function::Mean { mean } else { scale };
            let values: Vec<f64> = stats.iter().map(pick).collect();
            results.push(HostTensor::from_f64s(out.dtype, out.sizes.clone(), &values)?);
        }
        Ok(results)
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let x = cx.live(args.tensor("input")?)?;
        let rows = Rows::read(args, &x.sizes)?;
        let matrix = cx.contiguous(&x)?.restrided(vec![rows.count, rows.len], vec![rows.len, 1], 0);
        let y = cx.output(&outs[0])?;
        emit(cx, args, &rows, &matrix, &y)?;
        let mut tensors = vec![y];
        for (function, out) in rows.stats(args).into_iter().zip(&outs[1..]) {
            let stats = cx.alloc(out.dtype, &out.sizes)?;
            let source =
                if matrix.dtype == out.dtype { matrix.clone() } else { cx.converted(&matrix, out.dtype)? };
            reduce::emit(cx, &source, &RowSplit::new(2, &[1]), function, &stats)?;
            tensors.push(stats);
        }
        Ok(tensors)
    }
}

/// Emits what normalises the rows of `x` into `y`.
fn emit(cx: &mut Lowering<'_>, args: &Args<Operand>, rows: &Rows, x: &Tensor, y: &Tensor) -> Result<()> {
    if y.numel() == 0 {
        return Ok(());
    }
    let affine = |name| args.opt_tensor(name);
    let (weight, bias) = (affine("weight")?, affine("bias")?);
    let mixed = [weight, bias].into_iter().flatten().any(|operand| operand.dtype() != x.dtype);
    if mixed && x.dtype != DType::F32 {
        let (wide_x, wide_y) = (cx.converted(x, DType::F32)?, cx.alloc(DType::F32, &y.sizes)?);
        emit(cx, args, rows, &wide_x, &wide_y)?;
        return cx.copy(&wide_y, y);
    }
    let mut side = |operand: Option<&Operand>| -> Result<Tensor> {
        let Some(operand) = operand else { return Ok(x.clone()) };
        let tensor = cx.live(operand)?;
        if tensor.dtype == x.dtype { cx.contiguous(&tensor) } else { cx.converted(&tensor, x.dtype) }
    };
    let (weight_tensor, bias_tensor) = (side(weight)?, side(bias)?);
    let operands = kernel::Operands {
        x: x.region(),
        weight: weight_tensor.region(),
        bias: bias_tensor.region(),
        y: y.region(),
    };
    let takes_steps_of_4 = rows.len.is_multiple_of(4)
        && (rows.inner == 1 || rows.inner.is_multiple_of(4))
        && [x, &weight_tensor, &bias_tensor, y].into_iter().all(Tensor::starts_aligned4);
    let (width, step_elems) =
        if takes_steps_of_4 { (kernel::Width::Width4, 4) } else { (kernel::Width::Width1, 1) };
    let lanes = rows::lanes(cx.profile().class, rows.count, rows.len / step_elems, false);
    let spec = kernel::Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        op: rows.op,
        has_weight: u32::from(weight.is_some()),
        has_bias: u32::from(bias.is_some()),
        ..kernel::Spec::default()
    };
    // None of these is more than the elements of `x`, which fit 32 bits.
    let params = kernel::Params {
        rows: rows.count as u32,
        cols: rows.len as u32,
        lanes,
        groups: rows.groups as u32,
        per_group: rows.per_group as u32,
        inner: rows.inner as u32,
        eps: rows.eps as f32,
    };
    let axes = kernel::Axes { dtype: float_axis!(normalize, x.element)?, width };
    let groups = cx.groups_1d(rows.count * lanes as usize, rows::LOCAL_X)?;
    cx.emit(kernel::dispatch(axes, spec, operands, params, groups, cx.label()))
}

/// The input of a call as rows, and where their weights are.
struct Rows {
    op: kernel::Op,
    count: usize,
    len: usize,
    /// Rows whose weights differ: row `r` has those of group `r % groups`.
    groups: usize,
    /// Weights of a group; 0 where all rows share them.
    per_group: usize,
    /// Neighbouring elements that share a weight.
    inner: usize,
    eps: f64,
    affine_sizes: Vec<usize>,
    stats_sizes: Vec<usize>,
}

impl Rows {
    fn read<T>(args: &Args<T>, sizes: &[usize]) -> Result<Rows> {
        match args.op().base() {
            "native_group_norm" | "group_norm" => Rows::of_groups(args, sizes),
            _ => Rows::of_last_dims(args, sizes),
        }
    }

    /// Rows are the last dims, as many as `normalized_shape` names.
    fn of_last_dims<T>(args: &Args<T>, sizes: &[usize]) -> Result<Rows> {
        let name = "normalized_shape";
        let shape = args.ints(name)?;
        let kept = sizes.len().checked_sub(shape.len()).filter(|_| !shape.is_empty());
        let kept =
            kept.filter(|&kept| sizes[kept..].iter().zip(&shape).all(|(&size, &want)| size as i64 == want));
        let kept = kept.ok_or_else(|| {
            let message = format!("normalises {shape:?}, but the last sizes of the input {sizes:?} differ");
            Error::invalid_input(message).at_operand(name)
        })?;
        let op = match args.op().base() {
            "rms_norm" | "_fused_rms_norm" => kernel::Op::RmsNorm,
            _ => kernel::Op::LayerNorm,
        };
        let default_eps = if op == kernel::Op::RmsNorm { f64::from(f32::EPSILON) } else { 1e-5 };
        let mut stats_sizes = sizes.to_vec();
        stats_sizes[kept..].fill(1);
        Ok(Rows {
            op,
            count: shape::numel(&sizes[..kept])?,
            len: shape::numel(&sizes[kept..])?,
            groups: 1,
            per_group: 0,
            inner: 1,
            eps: args.float_or("eps", default_eps)?,
            affine_sizes: sizes[kept..].to_vec(),
            stats_sizes,
        })
    }

    /// Rows are groups of the channels, which are dim 1.
    fn of_groups<T>(args: &Args<T>, sizes: &[usize]) -> Result<Rows> {
        let &[batch, channels, ..] = sizes else {
            let message = format!("a group norm takes a batch and channels, not sizes {sizes:?}");
            return Err(Error::invalid_input(message).at_operand("input"));
        };
        let name = if args.has("group") { "group" } else { "num_groups" };
        let groups =
            usize::try_from(args.int(name)?).ok().filter(|&groups| groups > 0 && channels % groups == 0);
        let groups = groups.ok_or_else(|| {
            Error::invalid_input(format!("{channels} channels do not divide into such groups"))
                .at_operand(name)
        })?;
        let pixels = shape::numel(&sizes[2..])?;
        for (name, size) in [("N", batch), ("C", channels), ("HxW", pixels)] {
            if args.has(name) && args.int(name)? != size as i64 {
                let message = format!("is {}, but the input has sizes {sizes:?}", args.int(name)?);
                return Err(Error::invalid_input(message).at_operand(name));
            }
        }
        Ok(Rows {
            op: kernel::Op::LayerNorm,
            count: batch * groups,
            len: channels / groups * pixels,
            groups,
            per_group: channels / groups,
            inner: pixels.max(1),
            eps: args.float_or("eps", 1e-5)?,
            affine_sizes: vec![channels],
            stats_sizes: vec![batch, groups],
        })
    }

    /// What the call returns beside the normalised input, per row.
    fn stats<T>(&self, args: &Args<T>) -> Vec<Function> {
        match args.op().base() {
            "native_layer_norm" | "native_group_norm" => {
                vec![Function::Mean, Function::Rstd { eps: self.eps }]
            }
            "_fused_rms_norm" => vec![Function::Rrms { eps: self.eps }],
            _ => vec![],
        }
    }

    /// Position of the weight of an element.
    fn channel(&self, row: usize, column: usize) -> usize {
        (row % self.groups) * self.per_group + column / self.inner
    }

    fn mean_and_scale(&self, row: &[f64]) -> (f64, f64) {
        let len = row.len() as f64;
        let mean = if self.op == kernel::Op::RmsNorm { 0.0 } else { row.iter().sum::<f64>() / len };
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / len;
        (mean, 1.0 / (variance + self.eps).sqrt())
    }
}
