//! Conversion of a tensor to another dtype: `_to_copy`, `to`, `type_as`, and `prims.convert_element_type`.
//!
//! Values are converted, not bytes: floats are truncated to integers, integers wrap to narrower ones, and anything but
//! zero is true. All dtypes but float64. Placement (device, layout, memory format) means nothing here; where the dtype
//! stays what it is, so does the tensor.

use super::{
    Args, Lowering, Meta, Op, Operand, Tensor,
    operands::{self, Typed},
};
use crate::base::{DType, Error, HostTensor, Result};

/// The family of conversions.
pub struct Cast;

/// The tensor to convert, and the dtype that it gets.
///
/// # Errors
/// What is no tensor, or converted to float64.
pub(super) fn call<T: Typed>(args: &Args<T>) -> Result<(&T, DType)> {
    let x = operands::tensor(args, if args.op().base() == "convert_element_type" { "a" } else { "self" })?;
    let dtype = match args.op().as_str() {
        "aten.type_as.default" | "aten.to.other" => operands::tensor(args, "other")?.dtype(),
        _ => args.opt_dtype("dtype")?.unwrap_or(x.dtype()),
    };
    if dtype == DType::F64 {
        return Err(Error::unsupported("float64 has no kernel; use float32").at_operand("dtype"));
    }
    Ok((x, dtype))
}

impl Op for Cast {
    fn targets(&self) -> &'static [&'static str] {
        &[
            "aten._to_copy.default",
            "aten.to.device",
            "aten.to.dtype",
            "aten.to.dtype_layout",
            "aten.to.other",
            "aten.type_as.default",
            "prims.convert_element_type.default",
        ]
    }

    fn infer(&self, args: &Args<Meta>) -> Result<Vec<Meta>> {
        let (x, dtype) = call(args)?;
        Ok(vec![Meta::new(dtype, x.sizes.clone())])
    }

    fn eval(&self, args: &Args<HostTensor>, _outs: &[Meta]) -> Result<Vec<HostTensor>> {
        let (x, dtype) = call(args)?;
        Ok(vec![x.cast(dtype)?])
    }

    fn lower(&self, args: &Args<Operand>, _outs: &[Meta], cx: &mut Lowering<'_>) -> Result<Vec<Tensor>> {
        let (x, dtype) = call(args)?;
        Ok(vec![operands::live_as(cx, x, dtype)?])
    }
}
