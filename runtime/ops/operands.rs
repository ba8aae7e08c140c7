//! Operands of element-wise ops: tensors or numbers, what dtype they give together, and how host loops and kernels
//! get at them.

use super::{ArgValue, Args, Lowering, Meta, Operand, Tensor};
use crate::base::{DType, Error, HostTensor, Result, Scalar, shape};

/// What has a dtype and sizes.
pub trait Typed {
    /// The element type.
    fn dtype(&self) -> DType;
    /// Sizes, outermost first.
    fn sizes(&self) -> &[usize];
}

impl Typed for Meta {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn sizes(&self) -> &[usize] {
        &self.sizes
    }
}

impl Typed for HostTensor {
    fn dtype(&self) -> DType {
        self.dtype()
    }

    fn sizes(&self) -> &[usize] {
        self.sizes()
    }
}

impl Typed for Operand {
    fn dtype(&self) -> DType {
        self.dtype()
    }

    fn sizes(&self) -> &[usize] {
        self.sizes()
    }
}

/// An operand: a tensor, or a number in its place.
#[derive(Debug)]
pub enum Input<'a, T> {
    /// A tensor.
    Tensor(&'a T),
    /// A host scalar.
    Number(Scalar),
}

impl<T> Clone for Input<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Input<'_, T> {}

impl<'a, T: Typed> Input<'a, T> {
    /// The argument `name`.
    ///
    /// # Errors
    /// When it is left out, neither a tensor nor a number, or a `float64` tensor.
    pub fn of(args: &'a Args<T>, name: &str) -> Result<Input<'a, T>> {
        match args.get(name) {
            Some(ArgValue::Scalar(scalar)) => Ok(Input::Number(*scalar)),
            _ => tensor(args, name).map(Input::Tensor),
        }
    }

    /// Sizes, outermost first; none for a number.
    pub fn sizes(&self) -> &'a [usize] {
        match self {
            Input::Tensor(tensor) => tensor.sizes(),
            Input::Number(_) => &[],
        }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<Scalar> {
        match self {
            Input::Tensor(_) => None,
            Input::Number(number) => Some(*number),
        }
    }
}

/// The tensor `name`, of a dtype that kernels know.
///
/// # Errors
/// When it is left out, no tensor, or a `float64` tensor.
pub fn tensor<'a, T: Typed>(args: &'a Args<T>, name: &str) -> Result<&'a T> {
    let tensor = args.tensor(name)?;
    if tensor.dtype() == DType::F64 {
        return Err(Error::unsupported("float64 has no kernel; use float32").at_operand(name));
    }
    Ok(tensor)
}

/// `torch.result_type`: tensors with dims come before 0-d tensors, those before numbers; a later one counts only
/// when it is of a higher category (bool, integer, float).
pub fn result_type<T: Typed>(inputs: &[Input<'_, T>]) -> DType {
    let (mut dimensioned, mut zero_dim, mut numbers) = (None, None, None);
    for input in inputs {
        let (slot, dtype) = match input {
            Input::Tensor(tensor) if tensor.sizes().is_empty() => (&mut zero_dim, tensor.dtype()),
            Input::Tensor(tensor) => (&mut dimensioned, tensor.dtype()),
            Input::Number(Scalar::Float(_)) => (&mut numbers, DType::F32),
            Input::Number(Scalar::Int(_)) => (&mut numbers, DType::I64),
            Input::Number(Scalar::Bool(_)) => (&mut numbers, DType::Bool),
        };
        *slot = Some(slot.map_or(dtype, |before: DType| before.promote(dtype)));
    }
    let lower = combined(zero_dim, numbers);
    combined(dimensioned, lower).unwrap_or(DType::F32)
}

fn combined(higher: Option<DType>, lower: Option<DType>) -> Option<DType> {
    match (higher, lower) {
        (Some(higher), Some(lower)) if !higher.is_float() && (higher == DType::Bool || lower.is_float()) => {
            Some(higher.promote(lower))
        }
        (Some(higher), _) => Some(higher),
        (None, lower) => lower,
    }
}

/// The sizes that all inputs broadcast to.
///
/// # Errors
/// When they do not broadcast.
pub fn broadcast_sizes<T: Typed>(inputs: &[Input<'_, T>]) -> Result<Vec<usize>> {
    inputs.iter().try_fold(Vec::new(), |sizes, input| shape::broadcast(&sizes, input.sizes()))
}

/// Refuses a number that an integer dtype cannot hold, as PyTorch does; `int64` is 32 bits wide on a device.
///
/// # Errors
/// When it does not fit.
pub fn check_number(number: Scalar, dtype: DType) -> Result<()> {
    let range = match dtype {
        DType::I64 => DType::I32.int_range(),
        // PyTorch lets negative numbers wrap.
        DType::U8 => Some((-255, 255)),
        DType::Bool => None,
        _ => dtype.int_range(),
    };
    match range {
        Some((low, high)) if !number.is_float() && !(low..=high).contains(&number.as_i64()) => {
            let why = if dtype == DType::I64 { " (int64 is 32 bits wide on a device)" } else { "" };
            Err(Error::unsupported(format!("the number {number} does not fit {dtype}{why}")))
        }
        _ => Ok(()),
    }
}

impl Input<'_, HostTensor> {
    /// The elements as doubles: converted to `dtype`, then repeated to `sizes`. A number is rounded to `float32`.
    ///
    /// # Errors
    /// When it does not broadcast.
    pub fn f64s(&self, dtype: DType, sizes: &[usize]) -> Result<Vec<f64>> {
        match self {
            Input::Number(number) => Ok(vec![f64::from(number.as_f64() as f32); shape::numel(sizes)?]),
            Input::Tensor(tensor) => repeated(tensor.sizes(), &tensor.cast(dtype)?.to_f64s(), sizes),
        }
    }

    /// The elements as integers: converted to `dtype`, then repeated to `sizes`.
    ///
    /// # Errors
    /// When it does not broadcast.
    pub fn i64s(&self, dtype: DType, sizes: &[usize]) -> Result<Vec<i64>> {
        match self {
            Input::Number(number) => repeated(&[], &HostTensor::scalar(dtype, *number).to_i64s(), sizes),
            Input::Tensor(tensor) => repeated(tensor.sizes(), &tensor.cast(dtype)?.to_i64s(), sizes),
        }
    }
}

/// `values` of a contiguous tensor of `sizes`, repeated to `target` sizes.
fn repeated<V: Copy>(sizes: &[usize], values: &[V], target: &[usize]) -> Result<Vec<V>> {
    if sizes == target {
        return Ok(values.to_vec());
    }
    let strides = shape::broadcast_strides(sizes, &shape::contiguous_strides(sizes), target)?;
    let mut out = Vec::with_capacity(shape::numel(target)?);
    shape::for_each_offset(target, &strides, 0, |offset| out.push(values[offset]));
    Ok(out)
}

/// `operand` as a live tensor whose elements are what kernels over `dtype` take.
///
/// # Errors
/// When a constant or a conversion is too large.
pub fn live_as(cx: &mut Lowering<'_>, operand: &Operand, dtype: DType) -> Result<Tensor> {
    let tensor = cx.live(operand)?;
    retyped(cx, &tensor, dtype)
}

/// `tensor` as `dtype`: itself where its elements in memory can stay what they are, else a converted copy.
///
/// # Errors
/// When the conversion is too large.
pub fn retyped(cx: &mut Lowering<'_>, tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    let holds_every_value = tensor.dtype.promote(dtype) == dtype;
    if holds_every_value && tensor.element == cx.element_of(dtype) {
        return Ok(Tensor { dtype, ..tensor.clone() });
    }
    cx.converted(tensor, dtype)
}

/// The two sides of a function, as kernels take them.
#[derive(Clone, Debug)]
pub struct Sides {
    /// The left tensor; the other one where the left side is a number.
    pub left: Tensor,
    /// The right tensor; the other one where the right side is a number.
    pub right: Tensor,
    /// The number, where one side is one.
    pub number: Scalar,
    /// Which side is the number, as `lib/pointwise.glsl` counts them.
    pub number_side: u32,
}

/// Kernels' `number_side`: the left side is a number.
pub const NUMBER_LEFT: u32 = 1;
/// Kernels' `number_side`: the right side is a number.
pub const NUMBER_RIGHT: u32 = 2;

impl Sides {
    /// Both sides, converted to `dtype`.
    ///
    /// # Errors
    /// When both are numbers, or a conversion is too large.
    pub fn new(
        cx: &mut Lowering<'_>,
        left: Input<'_, Operand>,
        right: Input<'_, Operand>,
        dtype: DType,
    ) -> Result<Sides> {
        match (left, right) {
            (Input::Tensor(left), Input::Tensor(right)) => {
                let left = live_as(cx, left, dtype)?;
                let right = live_as(cx, right, dtype)?;
                Ok(Sides { left, right, number: Scalar::Int(0), number_side: 0 })
            }
            (Input::Tensor(left), Input::Number(number)) => {
                let left = live_as(cx, left, dtype)?;
                Ok(Sides { right: left.clone(), left, number, number_side: NUMBER_RIGHT })
            }
            (Input::Number(number), Input::Tensor(right)) => {
                let right = live_as(cx, right, dtype)?;
                Ok(Sides { left: right.clone(), right, number, number_side: NUMBER_LEFT })
            }
            (Input::Number(_), Input::Number(_)) => Err(Error::internal("two numbers were not refused")),
        }
    }
}

/// The number as kernels over integers of `dtype` take it.
pub fn kernel_int(number: Scalar, dtype: DType) -> i32 {
    let held = HostTensor::scalar(if dtype == DType::I64 { DType::I32 } else { dtype }, number);
    held.to_i64s().first().map_or(0, |&value| value as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(dtype: DType, sizes: &[usize]) -> Meta {
        Meta::new(dtype, sizes)
    }

    #[test]
    fn numbers_and_0d_tensors_count_only_by_category() {
        let int8 = meta(DType::I8, &[2]);
        let half = meta(DType::F16, &[2]);
        let bools = meta(DType::Bool, &[2]);
        let zero_dim_float = meta(DType::F32, &[]);
        let zero_dim_long = meta(DType::I64, &[]);
        let two = |a, b| result_type(&[a, b]);
        assert_eq!(two(Input::Tensor(&int8), Input::Number(Scalar::Int(3))), DType::I8);
        assert_eq!(two(Input::Tensor(&int8), Input::Number(Scalar::Float(3.0))), DType::F32);
        assert_eq!(two(Input::Tensor(&half), Input::Number(Scalar::Float(3.0))), DType::F16);
        assert_eq!(two(Input::Tensor(&half), Input::Tensor(&zero_dim_float)), DType::F16);
        assert_eq!(two(Input::Tensor(&int8), Input::Tensor(&zero_dim_long)), DType::I8);
        assert_eq!(two(Input::Tensor(&bools), Input::Tensor(&zero_dim_long)), DType::I64);
        assert_eq!(two(Input::Tensor(&int8), Input::Tensor(&half)), DType::F16);
        assert_eq!(two(Input::Tensor(&zero_dim_long), Input::Number(Scalar::Float(1.0))), DType::F32);
    }

    #[test]
    fn numbers_must_fit_integers() {
        assert!(check_number(Scalar::Int(300), DType::I8).is_err());
        assert!(check_number(Scalar::Int(-1), DType::U8).is_ok());
        assert!(check_number(Scalar::Int(1 << 31), DType::I64).is_err());
        assert!(check_number(Scalar::Float(1e30), DType::F32).is_ok());
    }

    #[test]
    fn values_repeat_along_broadcast_dims() {
        assert_eq!(repeated(&[2, 1], &[7, 9], &[2, 3]).unwrap(), [7, 7, 7, 9, 9, 9]);
        assert_eq!(repeated(&[], &[7], &[2]).unwrap(), [7, 7]);
        assert!(repeated(&[1], &[7], &[0]).unwrap().is_empty());
    }
}
