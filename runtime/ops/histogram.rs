//! `aten.histc`: how many elements of a tensor lie in each of `bins` equal parts of the range from `min` to `max`.
//!
//! With `min = max` the range is that of the data, which has to be finite. The part of `v` is
//! `(v - min) * bins / (max - min)` without its fraction, in float32 as PyTorch's kernel for the CPU computes it; `max`
//! belongs to the last part, and NaN and what is outside the range count nowhere. Takes float32. The counts are kept in
//! 32 bits whatever the precision, as half of them would name other rows where they are added up to positions.

use super::{
    ArgValue, Args, Element, Lowering, Meta, Op, Operand, Tensor,
    fill::{fill, u32_of},
    find,
    view::{layout_of, tensor_at},
};
use crate::{
    base::{DType, Error, ErrorKind, HostTensor, Result, Scalar},
    ir::OpName,
    shader::kernels::histogram,
};

/// The family of `aten.histc`.
pub struct Histogram;

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Call {
    bins: usize,
    /// `None` where the range is that of the data.
    range: Option<[f32; 2]>,
}

impl Op for Histogram {
    fn targets(&self) -> &'static [&'static str] {
        &["aten.histc.default"]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let x = args.tensor("self")?;
        if x.dtype != DType::F32 {
            let text = format!("is {}; histc takes float32, so convert it first", x.dtype);
            return Err(Error::unsupported(text).at_operand("self"));
        }
        Ok(vec![Meta::new(DType::F32, [Call::of(args)?.bins])])
    }

    fn eval(&self, args: &Args<HostTensor>, outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let call = Call::of(args)?;
        let values = args.tensor("self")?.to_f32s();
        let [lo, hi] = match call.range {
            Some(range) => range,
            None => range_of(&values)?,
        };
        let mut counts = vec![0i64; call.bins];
        for v in values.into_iter().filter(|v| (lo..=hi).contains(v)) {
            let at = (v - lo) * call.bins as f32 / (hi - lo);
            counts[(at as usize).min(call.bins - 1)] += 1;
        }
        Ok(vec![HostTensor::from_i64s(DType::F32, outs[0].sizes.clone(), &counts)?])
    }

    fn lower(&self, args: &Args<Operand>, outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let call = Call::of(args)?;
        let x = cx.live(args.tensor("self")?)?;
        let x = cx.contiguous(&x)?;
        let out = cx.alloc_as(DType::F32, Element::F32, &outs[0].sizes)?;
        if x.numel() == 0 {
            fill(cx, &out, Scalar::Float(0.0))?;
            return Ok(vec![out]);
        }
        // The kernel looks at `range` only where it is that of the data.
        let (range, [lo, hi]) = match call.range {
            Some(range) => (x.clone(), range),
            None => (extremes(cx, &x)?, [0.0; 2]),
        };
        let params = histogram::Params {
            n_elems: u32_of(x.numel())?,
            bins: u32_of(call.bins)?,
            lo,
            hi,
            from_data: u32::from(call.range.is_none()),
            node: cx.node_id(),
        };
        let spec = histogram::Spec::default();
        let axes = histogram::Axes { dtype: float_axis!(histogram, x.element)? };
        let operands = histogram::Operands {
            x: x.region(),
            range: range.region(),
            y: out.region(),
            status: cx.status(),
        };
        let groups = cx.groups_1d(call.bins.saturating_mul(spec.local_x as usize), spec.local_x)?;
        cx.emit(histogram::dispatch(axes, spec, operands, params, groups, cx.label()))?;
        Ok(vec![out])
    }
}

impl Call {
    fn of<T>(args: &Args<T>) -> Result<Call> {
        let bins = args.int_or("bins", 100)?;
        let bins = usize::try_from(bins).ok().filter(|&bins| bins > 0).ok_or_else(|| {
            Error::invalid_input(format!("a histogram has at least one bin, not {bins}")).at_operand("bins")
        })?;
        let (min, max) = (args.float_or("min", 0.0)?, args.float_or("max", 0.0)?);
        if !(min as f32).is_finite() || !(max as f32).is_finite() || max < min {
            let text = format!("goes from {min} to {max}; a range is finite and does not go down");
            return Err(Error::invalid_input(text).at_operand("max"));
        }
        Ok(Call { bins, range: (min != max).then_some([min as f32, max as f32]) })
    }
}

/// The range of the data, as wide as the kernel makes it.
fn range_of(values: &[f32]) -> Result<[f32; 2]> {
    if values.iter().any(|v| !v.is_finite()) {
        let text = "the values that a range is taken from are not all finite";
        return Err(Error::new(ErrorKind::BadData, text).at_operand("self"));
    }
    let lo = values.iter().copied().reduce(f32::min).unwrap_or(0.0);
    let hi = values.iter().copied().reduce(f32::max).unwrap_or(0.0);
    Ok(if lo == hi { [lo - 1.0, hi + 1.0] } else { [lo, hi] })
}

/// The least and the largest element of `x`, side by side.
fn extremes(cx: &mut Lowering<'_>, x: &Tensor) -> Result<Tensor> {
    let range = cx.alloc_as(x.dtype, x.element, &[2])?;
    for (index, target) in ["aten.amin.default", "aten.amax.default"].into_iter().enumerate() {
        let op = find(target).ok_or_else(|| Error::internal(format!("{target} is in no family")))?;
        let items = vec![("self".to_string(), ArgValue::Tensor(Operand::Live(x.clone())))];
        let args = Args::new(OpName::new(target), items);
        let found = op.lower(&args, &[Meta::new(x.dtype, [])], cx)?;
        let found = found.first().ok_or_else(|| Error::internal("a reduction without a result"))?;
        cx.copy(found, &tensor_at(&range, &layout_of(&range).selected(0, index)))?;
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(min: f64, max: f64, bins: i64) -> Result<Call> {
        let items = [("bins", Scalar::Int(bins)), ("min", Scalar::Float(min)), ("max", Scalar::Float(max))];
        let items = items.map(|(name, value)| (name.to_string(), ArgValue::<Meta>::Scalar(value)));
        Call::of(&Args::new(OpName::new("aten.histc.default"), items.into()))
    }

    #[test]
    fn equal_ends_take_the_range_of_the_data() {
        assert_eq!(call(2.0, 2.0, 3).unwrap(), Call { bins: 3, range: None });
        assert_eq!(call(0.0, 7.0, 8).unwrap(), Call { bins: 8, range: Some([0.0, 7.0]) });
        assert_eq!(range_of(&[3.0, 3.0]).unwrap(), [2.0, 4.0]);
        assert_eq!(range_of(&[]).unwrap(), [-1.0, 1.0]);
        assert!(range_of(&[1.0, f32::NAN]).is_err());
    }

    #[test]
    fn ranges_that_go_down_or_nowhere_are_refused() {
        for (min, max, bins) in [(2.0, 1.0, 3), (f64::NAN, 1.0, 3), (0.0, f64::INFINITY, 3), (0.0, 1.0, 0)] {
            assert!(call(min, max, bins).is_err(), "{min} {max} {bins}");
        }
    }
}
