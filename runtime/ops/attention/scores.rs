//! Attention in three dispatches, through the scores in memory: for every width, and for devices that bind few buffers.

use super::{
    super::{
        Element, Lowering, Meta, Tensor,
        elementwise::pad,
        product::{self, Columns, Product},
        rows,
    },
    Call,
};
use crate::{
    base::{DType, Result, shape},
    shader::{ChoiceRecord, kernels::attention_softmax as kernel},
};

/// Emits the call; gives the result. `record` tells of the choice, where there was one.
///
/// # Errors
/// What a product or an allocation cannot do.
pub fn lower(call: &Call, record: Option<ChoiceRecord>, out: &Meta, cx: &mut Lowering<'_>) -> Result<Tensor> {
    let sizes = &call.sizes;
    let y = cx.output(out)?;
    if y.numel() == 0 {
        return Ok(y);
    }
    let scores = cx.alloc_as(DType::F32, Element::F32, &sizes.scores())?;
    let mut product = Product::new(call.query.clone(), Columns::Live(product::transposed(&call.key)));
    product.alpha = sizes.scale as f32;
    product.bias = call.mask.clone().filter(|mask| mask.dtype != DType::Bool);
    product.keeps_f32 = true;
    product.emit(cx, &scores)?;
    let weights = cx.alloc(out.dtype, &scores.sizes)?;
    emit_softmax(cx, call, record, [&scores, &weights])?;
    let result = sizes.result();
    let matrices = y.restrided(result.clone(), shape::contiguous_strides(&result), 0);
    Product::new(weights, Columns::Live(call.value.clone())).emit(cx, &matrices)?;
    Ok(y)
}

/// Emits what turns scores into weights.
fn emit_softmax(
    cx: &mut Lowering<'_>,
    call: &Call,
    record: Option<ChoiceRecord>,
    [scores, weights]: [&Tensor; 2],
) -> Result<()> {
    let sizes = &call.sizes;
    let [queries, keys, _] = sizes.counts;
    if scores.numel() == 0 {
        return Ok(());
    }
    let mask = match &call.mask {
        Some(mask) if mask.dtype == DType::Bool => {
            let mask = mask.broadcast_to(&scores.sizes)?;
            if merged_rows(&mask).0.len() > 4 { Some(cx.contiguous(&mask)?) } else { Some(mask) }
        }
        _ => None,
    };
    let rows = scores.numel() / keys;
    let mut params = kernel::Params {
        rows: rows as u32,
        cols: keys as u32,
        lanes: rows::lanes(cx.profile().class, rows, keys, false),
        queries: queries as u32,
        fill: sizes.fill.unwrap_or(f64::NEG_INFINITY) as f32,
        row_sizes: [1; 4],
        ..Default::default()
    };
    if let Some(mask) = &mask {
        let (row_sizes, row_strides) = merged_rows(mask);
        params.row_sizes = pad(&row_sizes, 1)?;
        params.mask_row_strides = pad(&row_strides, 0)?;
        params.mask_col_stride = mask.strides.last().map_or(0, |&stride| stride as u32);
    }
    let axes = kernel::Axes { dtype: float_axis!(attention_softmax, weights.element)? };
    let spec = kernel::Spec {
        round_mode: cx.round_mode(weights.dtype, weights.element),
        mask_kind: match (&mask, sizes.fill) {
            (None, _) => kernel::MaskKind::None,
            (Some(_), None) => kernel::MaskKind::Chosen,
            (Some(_), Some(_)) => kernel::MaskKind::Filled,
        },
        is_causal: u32::from(sizes.is_causal),
        dead_is_nan: u32::from(sizes.dead_is_nan),
        ..Default::default()
    };
    let operands = kernel::Operands {
        x: scores.region(),
        mask: mask.as_ref().map_or(scores.region(), Tensor::region),
        y: weights.region(),
    };
    let groups = cx.groups_1d(rows * params.lanes as usize, rows::LOCAL_X)?;
    let mut dispatch = kernel::dispatch(axes, spec, operands, params, groups, cx.label());
    dispatch.choice = record;
    cx.emit(dispatch)
}

/// All dims but the last, merged, with their strides.
fn merged_rows(mask: &Tensor) -> (Vec<usize>, Vec<usize>) {
    let rank = mask.sizes.len() - 1;
    let (sizes, mut strides) = shape::merge_dims(&mask.sizes[..rank], &[&mask.strides[..rank]]);
    (sizes, strides.pop().unwrap_or_default())
}
