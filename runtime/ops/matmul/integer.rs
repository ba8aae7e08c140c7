//! Lowering of products of integers, which are rare: one invocation an element.

use super::Form;
use crate::{
    base::{DType, Error, Result, Scalar, shape},
    ops::{Lowering, Tensor, elementwise::pad, fill::fill},
    shader::{Dispatch, kernels::matmul_int},
};

/// Emits `y = a b`; `y` is contiguous with the sizes of `form`'s matrices.
///
/// # Errors
/// When the device cannot bind an operand, or takes fewer work groups than there are batches.
pub(super) fn emit(cx: &mut Lowering<'_>, form: &Form, a: &Tensor, b: &Tensor, y: &Tensor) -> Result<()> {
    if y.numel() == 0 {
        return Ok(());
    }
    if form.k == 0 {
        return fill(cx, y, Scalar::Int(0));
    }
    let sized = |last: [usize; 2]| [&form.batch[..], &last].concat();
    let mut a = a.broadcast_to(&sized([form.m, form.k]))?;
    let mut b = b.broadcast_to(&sized([form.k, form.n]))?;
    let rank = form.batch.len();
    let merge = |a: &Tensor, b: &Tensor| {
        shape::merge_dims(&form.batch, &[&y.strides[..rank], &a.strides[..rank], &b.strides[..rank]])
    };
    let (mut sizes, mut strides) = merge(&a, &b);
    if sizes.len() > 2 {
        (a, b) = (cx.contiguous(&a)?, cx.contiguous(&b)?);
        (sizes, strides) = merge(&a, &b);
    }
    let [_, batch_1] = pad(&sizes, 1)?;
    let kernel_strides = |own: &Tensor, batch: &[usize]| -> Result<[u32; 4]> {
        let [batch_0, batch_1] = pad(batch, 0)?;
        let [row, column] = pad(&own.strides[rank..], 0)?;
        Ok([batch_0, batch_1, row, column])
    };
    let params = matmul_int::Params {
        node: cx.node_id(),
        m: form.m as u32,
        n: form.n as u32,
        k: form.k as u32,
        batch_1,
        a_strides: kernel_strides(&a, &strides[1])?,
        b_strides: kernel_strides(&b, &strides[2])?,
    };
    let ops = 2 * y.numel() as u64 * form.k as u64;
    let dispatch = dispatch(cx, &a, &b, y, params)?;
    cx.emit(dispatch.of_ops(ops))
}

fn dispatch(
    cx: &mut Lowering<'_>,
    a: &Tensor,
    b: &Tensor,
    y: &Tensor,
    params: matmul_int::Params,
) -> Result<Dispatch> {
    let spec = matmul_int::Spec {
        round_mode: cx.round_mode(y.dtype, y.element),
        is_i64: u32::from(y.dtype == DType::I64),
        ..Default::default()
    };
    let [x, y_groups, _] = cx.groups_1d(params.m as usize * params.n as usize, spec.local_x)?;
    let batches = y.numel() / (params.m as usize * params.n as usize);
    let batches = u32::try_from(batches).map_err(|_| Error::unsupported("has too many batches"))?;
    // A sum over nothing reads neither operand, which then have no bytes to bind.
    let bound = |tensor: &Tensor| if params.k == 0 { y.region() } else { tensor.region() };
    let operands = matmul_int::Operands { a: bound(a), b: bound(b), y: y.region(), status: cx.status() };
    Ok(matmul_int::dispatch(matmul_int::Axes {}, spec, operands, params, [x, y_groups, batches], cx.label()))
}
