//! Attention: `softmax(scale q k^T + mask) v`, with the softmax over the keys.
//!
//! `aten.scaled_dot_product_attention.default` with q of sizes `[..., L, E]`, k `[..., S, E]`, v `[..., S, Ev]`,
//! floats of one dtype; leading dims broadcast, and with `enable_gqa` each head of k and v serves several of q. The
//! mask is of floats, which are added, or of bools, which say what counts; or `is_causal` stands for the lower
//! triangle. A query for which nothing counts gets zeros. `scale` is `1 / sqrt(E)` unless given. Scores are kept in
//! 32 bits. Dropout is refused.
//!
//! `vkdelegate.attention.default` is the same for what the attention pass finds in pieces. With `dead_is_nan` a query for
//! which nothing counts gets NaN, as from a bare softmax. With `fill`, a number, the scores that a mask of bools picks are
//! replaced by it.
//!
//! On the device: one dispatch that never writes the scores ([`fused`]), or a product, a softmax that knows masks, and a
//! product ([`scores`]) for what that does not take. Which of them: [`ways`].

mod fused;
mod scores;
mod ways;

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    matmul::{self, Form},
};
use crate::base::{DType, Error, HostTensor, Result, shape};
use ways::AttentionWay;

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
    /// A query for which nothing counts gets NaN, not zeros.
    dead_is_nan: bool,
    /// The score of what a mask of bools picks, where it does not say what counts.
    fill: Option<f64>,
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
            dead_is_nan: args.bool_or("dead_is_nan", false)?,
            fill: if args.has("fill") { Some(args.scalar("fill")?.as_f64()) } else { None },
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
        &["aten.scaled_dot_product_attention.default", "vkdelegate.attention.default"]
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
            if mask.dtype != DType::Bool && args.has("fill") {
                let text = format!("is {}; what picks scores to fill is bool", mask.dtype);
                return Err(Error::invalid_graph(text).at_operand("attn_mask"));
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
            apply_mask(&mut scores, &score_sizes, mask, &sizes)?;
        }
        let [queries, keys, _] = sizes.counts;
        for (index, row) in scores.chunks_exact_mut(keys.max(1)).enumerate() {
            if sizes.is_causal {
                row.iter_mut().skip(index % queries + 1).for_each(|score| *score = f64::NEG_INFINITY);
            }
            softmax(row, if sizes.dead_is_nan { f64::NAN } else { 0.0 });
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
        let call = Call {
            query: live("query", &sizes.query)?,
            key: live("key", &sizes.key)?,
            value: live("value", &sizes.value)?,
            mask: sizes.mask.as_ref().map(|mask| live("attn_mask", mask)).transpose()?,
            sizes,
        };
        let chosen = fused::choose(&call, &outs[0], cx)?;
        let (chosen, record) = match chosen {
            Some(chosen) if chosen.value == AttentionWay::Products => (None, Some(chosen.record)),
            chosen => (chosen, None),
        };
        let fused = match chosen {
            Some(chosen) => fused::lower(&call, &chosen, &outs[0], cx)?,
            None => None,
        };
        let y = match fused {
            Some(y) => y,
            None => scores::lower(&call, record, &outs[0], cx)?,
        };
        Ok(vec![y])
    }
}

/// A call in device memory; operands have the dim of groups.
struct Call {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    sizes: Sizes,
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

/// Adds a mask of floats, or replaces the scores that a mask of bools leaves out, or picks where there is a `fill`.
fn apply_mask(scores: &mut [f64], score_sizes: &[usize], mask: &HostTensor, sizes: &Sizes) -> Result<()> {
    let mask_sizes = sizes.mask.as_deref().unwrap_or_default();
    let own = shape::contiguous_strides(mask_sizes);
    let strides = shape::broadcast_strides(mask_sizes, &own, score_sizes)?;
    let values = mask.to_f64s();
    let mut scores = scores.iter_mut();
    shape::for_each_offset(score_sizes, &strides, 0, |offset| {
        let Some(score) = scores.next() else { return };
        match (mask.dtype(), sizes.fill, values[offset] != 0.0) {
            (DType::Bool, None, false) => *score = f64::NEG_INFINITY,
            (DType::Bool, Some(fill), true) => *score = fill,
            (DType::Bool, _, _) => {}
            _ => *score += values[offset],
        }
    });
    Ok(())
}

/// The softmax of a row; where all is -inf, `dead`.
fn softmax(row: &mut [f64], dead: f64) {
    let largest = row
        .iter()
        .fold(f64::NEG_INFINITY, |m, &v| if v.is_nan() || m.is_nan() { f64::NAN } else { m.max(v) });
    if largest == f64::NEG_INFINITY {
        return row.fill(dead);
    }
    let sum: f64 = row.iter().map(|v| (v - largest).exp()).sum();
    row.iter_mut().for_each(|v| *v = (*v - largest).exp() / sum);
}
