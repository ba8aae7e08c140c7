//! Quantisation on the host, in the precision and order of operations that PyTorch uses on a CPU.

use super::call::{Call, Param};
use crate::base::{Error, HostTensor, Result, Scalar, shape};

/// The codes, and whether each was within `low` and `high` before the clamp.
///
/// # Errors
/// When a parameter does not broadcast.
pub fn quantized(call: &Call<'_, HostTensor>, (low, high): (f64, f64)) -> Result<(Vec<i64>, Vec<bool>)> {
    let (scales, zeros) = (spread(call, call.scale)?, spread(call, call.zero)?);
    let is_number = matches!(call.scale, Param::Number(_)) || call.param_sizes.is_empty();
    let codes = call.x.to_f64s().into_iter().zip(scales).zip(zeros).map(|((v, scale), zero)| {
        let q = if call.is_wide() {
            rounded(v * (1.0 / scale), zero, call.rounds_sum)
        } else {
            let inverse = if is_number { (1.0 / scale) as f32 } else { 1.0 / scale as f32 };
            let scaled = v as f32 * inverse;
            let sum = if call.rounds_sum {
                (scaled + zero as f32).round_ties_even()
            } else {
                scaled.round_ties_even() + zero as f32
            };
            f64::from(sum)
        };
        let code = if q.is_nan() { 0.0 } else { q.max(low).min(high) };
        (code as i64, q >= low && q <= high)
    });
    Ok(codes.unzip())
}

fn rounded(scaled: f64, zero: f64, rounds_sum: bool) -> f64 {
    if rounds_sum { (scaled + zero).round_ties_even() } else { scaled.round_ties_even() + zero }
}

/// The values of `codes`.
///
/// # Errors
/// When a parameter does not broadcast.
pub fn dequantized(call: &Call<'_, HostTensor>, codes: &[i64]) -> Result<Vec<f64>> {
    let (scales, zeros) = (spread(call, call.scale)?, spread(call, call.zero)?);
    let wide = call.is_wide();
    let rounded = |difference: f64| match call.product_dtype() {
        Some(dtype) => HostTensor::scalar(dtype, Scalar::Float(difference)).to_f64s()[0],
        None => difference,
    };
    let values = codes.iter().zip(scales).zip(zeros).map(|((&code, scale), zero)| {
        let difference = rounded(code as f64 - zero);
        if wide { difference * scale } else { f64::from(difference as f32 * scale as f32) }
    });
    Ok(values.collect())
}

/// A parameter for each element of x.
fn spread(call: &Call<'_, HostTensor>, param: Param<'_, HostTensor>) -> Result<Vec<f64>> {
    let count = shape::numel(call.x.sizes())?;
    match param {
        Param::Number(number) => Ok(vec![number; count]),
        Param::Tensor(tensor) => {
            let own = shape::contiguous_strides(&call.param_sizes);
            let strides = shape::broadcast_strides(&call.param_sizes, &own, &call.grouped)?;
            let values = tensor.to_f64s();
            let mut out = Vec::with_capacity(count);
            let mut missing = false;
            shape::for_each_offset(&call.grouped, &strides, 0, |offset| match values.get(offset) {
                Some(&value) => out.push(value),
                None => missing = true,
            });
            if missing {
                return Err(Error::internal(format!(
                    "a parameter of sizes {:?} is too short",
                    tensor.sizes()
                )));
            }
            Ok(out)
        }
    }
}
