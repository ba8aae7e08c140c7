//! Fills tensors with one value: what creation, padding and scatters of a scalar share.

use half::f16;

use super::{Element, Lowering, Tensor, elementwise};
use crate::{
    base::{Error, HostTensor, Result, Scalar, shape},
    shader::kernels::fill,
};

/// Fills `out` with `value`, converted to its dtype; `out` is contiguous, or has one dim.
///
/// # Errors
/// When the value does not fit 32 bits, or the device cannot bind the tensor.
pub fn fill(cx: &mut Lowering<'_>, out: &Tensor, value: Scalar) -> Result<()> {
    let value = element_bits(cx, out, value)?;
    let axes = fill::Axes { dtype: move_axis!(fill, out.element) };
    let label = cx.label();
    let y_step = match out.strides.as_slice() {
        &[stride] if !out.is_contiguous() => {
            let params = fill::Params { n_elems: u32_of(out.numel())?, y_step: u32_of(stride)?, value };
            let groups = cx.groups_1d(out.numel(), elementwise::LOCAL_X)?;
            let operands = fill::Operands { y: out.region() };
            return cx.emit(fill::dispatch(axes, fill::Spec::default(), operands, params, groups, label));
        }
        _ => 1,
    };
    elementwise::launch(cx, out, [], |grid, binding| {
        let params = fill::Params { n_elems: grid.n_elems, y_step, value };
        let operands = fill::Operands { y: binding.out };
        fill::dispatch(axes, fill::Spec::default(), operands, params, binding.groups, label.clone())
    })
}

/// A tensor of `sizes` that repeats one element with the value `value` as `like`'s dtype.
///
/// # Errors
/// As [`fill`].
pub fn repeated_scalar(
    cx: &mut Lowering<'_>,
    like: &Tensor,
    sizes: &[usize],
    value: Scalar,
) -> Result<Tensor> {
    let one = cx.alloc(like.dtype, &[])?;
    fill(cx, &one, value)?;
    one.broadcast_to(sizes)
}

/// The bits of `value` as an element of `out`, as the kernel takes them.
fn element_bits(cx: &Lowering<'_>, out: &Tensor, value: Scalar) -> Result<u32> {
    let typed = HostTensor::scalar(out.dtype, value);
    if out.element == Element::I32 {
        let value = typed.to_i64s().first().copied().unwrap_or(0);
        let narrow = i32::try_from(value).map_err(|_| {
            Error::unsupported(format!("{value} does not fit the 32 bits that integers have on the device"))
        })?;
        return Ok(narrow as u32);
    }
    let value = typed.to_f32s().first().copied().unwrap_or(0.0);
    if !cx.is_half(out.dtype, out.element) {
        return Ok(value.to_bits());
    }
    // A mask's -1e9 stays finite.
    let largest = f16::MAX.to_f32();
    let value = if value.is_finite() { value.clamp(-largest, largest) } else { value };
    Ok(f16::from_f32(value).to_f32().to_bits())
}

/// `value` as a kernel parameter.
///
/// # Errors
/// When it does not fit 32 bits.
pub fn u32_of(value: usize) -> Result<u32> {
    u32::try_from(value)
        .map_err(|_| Error::unsupported(format!("{value} does not fit the 32 bits of a kernel's parameters")))
}

/// A contiguous host tensor filled with `value`.
///
/// # Errors
/// When the sizes are too large for this machine.
pub fn filled(dtype: crate::base::DType, sizes: &[usize], value: Scalar) -> Result<HostTensor> {
    let one = HostTensor::scalar(dtype, value);
    let len_bytes = shape::numel(sizes)?.checked_mul(one.bytes().len());
    let mut bytes = Vec::new();
    if len_bytes.is_none_or(|len| bytes.try_reserve_exact(len).is_err()) {
        return Err(Error::unsupported(format!(
            "a tensor of sizes {sizes:?} does not fit this machine's memory"
        )));
    }
    for _ in 0..len_bytes.unwrap_or(0) / one.bytes().len() {
        bytes.extend_from_slice(one.bytes());
    }
    HostTensor::new(dtype, sizes.to_vec(), bytes)
}
