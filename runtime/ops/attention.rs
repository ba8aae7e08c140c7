//! Attention: `softmax(scale q k^T + mask) v`, with the softmax over the keys.
//!
//! `aten.scaled_dot_product_attention.default` with q of sizes `[..., L, E]`, k `[..., S, E]`, v `[..., S, Ev]`,
//! floats of one dtype; leading dims broadcast, and with `enable_gqa` each head of k and v serves several of q. The
//! mask is of floats, which are added, or of bools, which say what counts; or `is_causal` stands for the lower
//! triangle. A query for which nothing counts gets zeros. `scale` is `1 / sqrt(E)` unless given. Scores are kept in
//! 32 bits. Dropout is refused.
//!
//! On the device: a product, a softmax that knows masks, and a product.

use super::{
    Args, Element, Lowering, Meta, Op, Operand, Tensor,
    matmul::{self, Form},
    product::{self, Columns, Product},
    rows,
};
use crate::{
    base::{DType, Error, HostTensor, Result, shape},
    shader::kernels::attention_softmax as kernel,
};

/// The family.
pub struct Attention;

/// Sizes of a call, with a dim for the group of queries that share a head where there are such.
struct Sizes {
    query: Vec<usize>,
    key: Vec<usize>,
    value: Vec<usize>,
    mask: Option<Vec<usize>>,
    /// Leading dims of the result.
    batch: Vec<usize>,
    /// Queries, keys, and elements of a value.
    counts: [usize; 3],
    scale: f64,
    is_causal: bool,
}

impl Sizes {
    fn new<T>(args: &Args<T>, sizes_of: impl Fn(&T) -> Vec<usize>) -> Result<Sizes> {
        let sizes = |name: &str| -> Result<Vec<usize>> {
            let sizes = sizes_of(args.tensor(name)?);
            if sizes.len() < 2 {
                let text = format!("has sizes {sizes:?}; attention takes rank 2 and more");
                return Err(Error::invalid_graph(text).at_operand(name));
            }
            Ok(sizes)
        };
        let (mut query, mut key, mut value) = (sizes("query")?, sizes("key")?, sizes("value")?);
        let mut mask = args.opt_tensor("attn_mask")?.map(sizes_of);
        let [queries, width] = last_two(&query);
        let ([keys, key_width], [values, value_width]) = (last_two(&key), last_two(&value));
        if key_width != width {
            let text = format!("has keys of {key_width}, queries have {width}");
            return Err(Error::invalid_graph(text).at_operand("key"));
        }
        if values != keys {
            return Err(Error::invalid_graph(format!("has {values}, keys are {keys}")).at_operand("value"));
        }
        if args.bool_or("enable_gqa", false)? {
            let heads = heads(&query)?;
            let groups = [heads_of("key", &key, heads)?, heads_of("value", &value, heads)?];
            split_heads(&mut query, groups[0], heads / groups[0]);
            split_heads(&mut key, groups[0], 1);
            // Values with heads of their own number repeat over the same queries.
            if groups[0] != groups[1] {
                let text = format!("has {} heads, keys have {}", groups[1], groups[0]);
                return Err(Error::unsupported(text).at_operand("value"));
            }
            split_heads(&mut value, groups[1], 1);
            if let Some(mask) = mask.as_mut().filter(|mask| mask.len() > 2) {
                let own = mask[mask.len() - 3];
                if own == 1 {
                    split_heads(mask, 1, 1)
                } else {
                    split_heads(mask, groups[0], heads / groups[0])
                }
            }
        }
        let front = |sizes: &[usize]| sizes[..sizes.len() - 2].to_vec();
        let batch = shape::broadcast(&front(&query), &front(&key))
            .map_err(|error| error.at_operand("key"))
            .and_then(|batch| {
            shape::broadcast(&batch, &front(&value)).map_err(|error| error.at_operand("value"))
        })?;
        let default = if width == 0 { 1.0 } else { 1.0 / (width as f64).sqrt() };
        let sizes = Sizes {
            query,
            key,
            value,
            mask,
            batch,
            counts: [queries, keys, value_width],
            scale: args.float_or("scale", default)?,
            is_causal: args.bool_or("is_causal", false)?,
        };
        let scores = sizes.scores();
        match &sizes.mask {
            Some(mask) if shape::broadcast(mask, &scores).ok().as_ref() != Some(&scores) => {
                let text = format!("of sizes {mask:?} does not broadcast to the scores' {scores:?}");
                Err(Error::invalid_graph(text).at_operand("attn_mask"))
            }
            _ => Ok(sizes),
        }
    }

    /// Sizes of the scores.
    fn scores(&self) -> Vec<usize> {
        [&self.batch[..], &self.counts[..2]].concat()
    }

    /// Sizes of the result, with the dim of groups.
    fn result(&self) -> Vec<usize> {
        [&self.batch[..], &[self.counts[0], self.counts[2]]].concat()
    }

    /// Sizes of the result as the program sees it.
    fn program_result(&self, query_rank: usize) -> Vec<usize> {
        let mut sizes = self.result();
        if self.query.len() > query_rank {
            let group = sizes.remove(sizes.len() - 3);
            let heads = sizes.len() - 3;
            sizes[heads] *= group;
        }
        sizes
    }
}

fn last_two(sizes: &[usize]) -> [usize; 2] {
    [sizes[sizes.len() - 2], sizes[sizes.len() - 1]]
}

fn heads(sizes: &[usize]) -> Result<usize> {
    sizes
        .len()
        .checked_sub(3)
        .map(|dim| sizes[dim])
        .ok_or_else(|| Error::invalid_graph("has no heads to group").at_operand("query"))
}

fn heads_of(name: &str, sizes: &[usize], query_heads: usize) -> Result<usize> {
    match sizes.len().checked_sub(3).map(|dim| sizes[dim]) {
        Some(heads) if heads > 0 && query_heads.is_multiple_of(heads) => Ok(heads),
        _ => {
            let text =
                format!("of sizes {sizes:?} has no heads that divide the {query_heads} of the queries");
            Err(Error::invalid_graph(text).at_operand(name))
        }
    }
}

/// Heads become two dims.
fn split_heads(sizes: &mut Vec<usize>, heads: usize, group: usize) {
    let dim = sizes.len() - 3;
    sizes.splice(dim..dim + 1, [heads, group]);
}

impl Op for Attention {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.scaled_dot_product_attention.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let query = args.tensor("query")?;
        for name in ["key", "value"] {
            matmul::check_floats(query.dtype, args.tensor(name)?.dtype)
                .map_err(|error| error.at_operand(name))?;
        }
        if let Some(mask) = args.opt_tensor("attn_mask")? {
            if mask.dtype != DType::Bool && mask.dtype != query.dtype {
                let text = format!("is {}; bool and {} are taken", mask.dtype, query.dtype);
                return Err(Error::invalid_graph(text).at_operand("attn_mask"));
            }
            if args.bool_or("is_causal", false)? {
                return Err(Error::invalid_graph("stands beside is_causal").at_operand("attn_mask"));
            }
        }
        if args.float_or("dropout_p", 0.0)? != 0.0 {
            return Err(Error::unsupported("drops scores at random; export the model in eval mode")
                .at_operand("dropout_p"));
        }
        let sizes = Sizes::new(args, |meta| meta.sizes.clone())?;
        Ok(vec![Meta::new(query.dtype, sizes.program_result(query.sizes.len()))])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let sizes = Sizes::new(args, |tensor| tensor.sizes().to_vec())?;
        let (key, key_sizes) = transposed(&args.tensor("key")?.to_f64s(), &sizes.key);
        let form = Form::new(&sizes.query, &key_sizes)?;
        let query = args.tensor("query")?.to_f64s();
        let mut scores = matmul::product(&form, (&query, &sizes.query), (&key, &key_sizes))?;
        scores.iter_mut().for_each(|score| *score *= sizes.scale);
        let score_sizes = form.matrices();
        if let Some(mask) = args.opt_tensor("attn_mask")? {
            add_mask(&mut scores, &score_sizes, mask, sizes.mask.as_deref().unwrap_or_default())?;
        }
        let [queries, keys, _] = sizes.counts;
        for (index, row) in scores.chunks_exact_mut(keys.max(1)).enumerate() {
            if sizes.is_causal {
                row.iter_mut().skip(index % queries + 1).for_each(|score| *score = f64::NEG_INFINITY);
            }
            softmax_or_zeros(row);
        }
        let form = Form::new(&score_sizes, &sizes.value)?;
        let value = args.tensor("value")?.to_f64s();
        let values = matmul::product(&form, (&scores, &score_sizes), (&value, &sizes.value))?;
        Ok(vec![HostTensor::from_f64s(outs[0].dtype, outs[0].sizes.clone(), &values)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let sizes = Sizes::new(args, |operand| operand.sizes().to_vec())?;
        let mut live = |name: &str, sizes: &[usize]| -> Result<Tensor> {
            let tensor = cx.live(args.tensor(name)?)?;
            tensor.viewed(sizes).ok_or_else(|| Error::internal("splitting a dim needs no copy"))
        };
        let query = live("query", &sizes.query)?;
        let (key, value) = (live("key", &sizes.key)?, live("value", &sizes.value)?);
        let mask = match &sizes.mask {
            Some(mask) => Some(live("attn_mask", mask)?),
            None => None,
        };
        let y = cx.output(&outs[0])?;
        if y.numel() == 0 {
            return Ok(vec![y]);
        }
        let (added, chosen) = match mask {
            Some(mask) if mask.dtype == DType::Bool => (None, Some(mask)),
            mask => (mask, None),
        };
        let scores = cx.alloc_as(DType::F32, Element::F32, &sizes.scores())?;
        let mut product = Product::new(query, Columns::Live(product::transposed(&key)));
        product.alpha = sizes.scale as f32;
        product.bias = added;
        product.keeps_f32 = true;
        product.emit(cx, &scores)?;
        let weights = cx.alloc(outs[0].dtype, &scores.sizes)?;
        emit_softmax(cx, &sizes, &scores, chosen, &weights)?;
        let result = sizes.result();
        let matrices = y.restrided(result.clone(), shape::contiguous_strides(&result), 0);
        Product::new(weights, Columns::Live(value)).emit(cx, &matrices)?;
        Ok(vec![y])
    }
}

fn emit_softmax(
    cx: &mut Lowering<'_>,
    sizes: &Sizes,
    scores: &Tensor,
    mask: Option<Tensor>,
    weights: &Tensor,
) -> Result<()> {
    let [queries, keys, _] = sizes.counts;
    if scores.numel() == 0 {
        return Ok(());
    }
    let mask = match mask {
        Some(mask) => {
            let mask = mask.broadcast_to(&scores.sizes)?;
            if merged_rows(&mask).0.len() > 4 { Some(cx.contiguous(&mask)?) } else { Some(mask) }
        }
        None => None,
    };
    let rows = scores.numel() / keys;
    let mut params = kernel::Params {
        rows: rows as u32,
        cols: keys as u32,
        lanes: rows::lanes(cx.profile().class, rows, keys, false),
        queries: queries as u32,
        row_sizes: [1; 4],
        ..Default::default()
    };
    if let Some(mask) = &mask {
        let (row_sizes, row_strides) = merged_rows(mask);
        params.row_sizes = super::elementwise::pad(&row_sizes, 1)?;
        params.mask_row_strides = super::elementwise::pad(&row_strides, 0)?;
        params.mask_col_stride = mask.strides.last().map_or(0, |&stride| stride as u32);
    }
    let axes = kernel::Axes { dtype: float_axis!(attention_softmax, weights.element)? };
    let spec = kernel::Spec {
        round_mode: cx.round_mode(weights.dtype, weights.element),
        has_mask: u32::from(mask.is_some()),
        is_causal: u32::from(sizes.is_causal),
        ..Default::default()
    };
    let operands = kernel::Operands {
        x: scores.region(),
        mask: mask.as_ref().map_or(scores.region(), Tensor::region),
        y: weights.region(),
    };
    let groups = cx.groups_1d(rows * params.lanes as usize, rows::LOCAL_X)?;
    cx.emit(kernel::dispatch(axes, spec, operands, params, groups, cx.label()))
}

/// All dims but the last, merged, with their strides.
fn merged_rows(mask: &Tensor) -> (Vec<usize>, Vec<usize>) {
    let rank = mask.sizes.len() - 1;
    let (sizes, mut strides) = shape::merge_dims(&mask.sizes[..rank], &[&mask.strides[..rank]]);
    (sizes, strides.pop().unwrap_or_default())
}

/// The last two dims swapped: the values and their sizes.
fn transposed(values: &[f64], sizes: &[usize]) -> (Vec<f64>, Vec<usize>) {
    let rank = sizes.len();
    let (mut sizes, mut strides) = (sizes.to_vec(), shape::contiguous_strides(sizes));
    sizes.swap(rank - 2, rank - 1);
    strides.swap(rank - 2, rank - 1);
    let mut out = Vec::with_capacity(values.len());
    shape::for_each_offset(&sizes, &strides, 0, |offset| out.push(values[offset]));
    (out, sizes)
}

/// Adds a mask of floats, or sets what a mask of bools leaves out to -inf.
fn add_mask(scores: &mut [f64], sizes: &[usize], mask: &HostTensor, mask_sizes: &[usize]) -> Result<()> {
    let own = shape::contiguous_strides(mask_sizes);
    let strides = shape::broadcast_strides(mask_sizes, &own, sizes)?;
    let values = mask.to_f64s();
    let mut scores = scores.iter_mut();
    shape::for_each_offset(sizes, &strides, 0, |offset| {
        if let Some(score) = scores.next() {
            match (mask.dtype(), values[offset]) {
                (DType::Bool, 0.0) => *score = f64::NEG_INFINITY,
                (DType::Bool, _) => {}
                (_, value) => *score += value,
            }
        }
    });
    Ok(())
}

fn softmax_or_zeros(row: &mut [f64]) {
    let largest = row
        .iter()
        .fold(f64::NEG_INFINITY, |m, &v| if v.is_nan() || m.is_nan() { f64::NAN } else { m.max(v) });
    if largest == f64::NEG_INFINITY {
        return row.fill(0.0);
    }
    let sum: f64 = row.iter().map(|v| (v - largest).exp()).sum();
    row.iter_mut().for_each(|v| *v = (*v - largest).exp() / sum);
}
