//! Tensors and scalars in host memory.

use std::{fmt, sync::Arc};

use half::{bf16, f16};

use super::{DType, Error, Result, shape};

/// A number or truth value that is no tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// An integer; stays 64 bits wide everywhere.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// The value as a float; a bool counts as 0 or 1.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
            Scalar::Bool(value) => f64::from(u8::from(value)),
        }
    }

    /// The value as an integer; a float is truncated towards zero, as PyTorch's `int()` does.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Int(value) => value,
            Scalar::Float(value) => value as i64,
            Scalar::Bool(value) => i64::from(value),
        }
    }

    /// Whether it is a [`Scalar::Float`].
    pub fn is_float(self) -> bool {
        matches!(self, Scalar::Float(_))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value:?}"),
            Scalar::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// A contiguous tensor in host memory: dtype, sizes and little-endian bytes. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct HostTensor {
    dtype: DType,
    sizes: Vec<usize>,
    bytes: Arc<Vec<u8>>,
}

impl HostTensor {
    /// A tensor of `sizes` over `bytes`, in row-major order.
    ///
    /// # Errors
    /// When `bytes` is not as long as the sizes ask for.
    pub fn new(dtype: DType, sizes: Vec<usize>, bytes: Vec<u8>) -> Result<HostTensor> {
        let want = shape::numel(&sizes)?.checked_mul(dtype.size_bytes());
        if want != Some(bytes.len()) {
            return Err(Error::invalid_input(format!(
                "a {dtype} tensor of sizes {sizes:?} takes {} bytes, {} were given",
                want.map_or("too many".to_string(), |want| want.to_string()),
                bytes.len()
            )));
        }
        Ok(HostTensor { dtype, sizes, bytes: Arc::new(bytes) })
    }

    /// A `float32` tensor.
    ///
    /// # Errors
    /// When `data` is not as long as the sizes ask for.
    pub fn from_f32(sizes: &[usize], data: &[f32]) -> Result<HostTensor> {
        HostTensor::new(DType::F32, sizes.to_vec(), bytemuck::cast_slice(data).to_vec())
    }

    /// An `int64` tensor.
    ///
    /// # Errors
    /// When `data` is not as long as the sizes ask for.
    pub fn from_i64(sizes: &[usize], data: &[i64]) -> Result<HostTensor> {
        HostTensor::new(DType::I64, sizes.to_vec(), bytemuck::cast_slice(data).to_vec())
    }

    /// A 0-d tensor that holds `scalar` as `dtype`.
    pub fn scalar(dtype: DType, scalar: Scalar) -> HostTensor {
        let bytes = if dtype.is_float() {
            encode_f64(dtype, &[scalar.as_f64()])
        } else {
            encode_i64(dtype, &[scalar.as_i64()])
        };
        HostTensor { dtype, sizes: Vec::new(), bytes: Arc::new(bytes) }
    }

    /// A tensor of any dtype from doubles, rounded to nearest even (floats) or truncated and wrapped (ints).
    ///
    /// # Errors
    /// When `data` is not as long as the sizes ask for.
    pub fn from_f64s(dtype: DType, sizes: Vec<usize>, data: &[f64]) -> Result<HostTensor> {
        let bytes = if dtype.is_float() {
            encode_f64(dtype, data)
        } else if dtype == DType::Bool {
            data.iter().map(|&value| u8::from(value != 0.0)).collect()
        } else {
            encode_i64(dtype, &data.iter().map(|&value| value as i64).collect::<Vec<_>>())
        };
        HostTensor::new(dtype, sizes, bytes)
    }

    /// A tensor of any dtype from integers; they wrap to the width of an integer dtype, and `bool` is `!= 0`.
    ///
    /// # Errors
    /// When `data` is not as long as the sizes ask for.
    pub fn from_i64s(dtype: DType, sizes: Vec<usize>, data: &[i64]) -> Result<HostTensor> {
        let bytes = if dtype.is_float() {
            encode_f64(dtype, &data.iter().map(|&value| value as f64).collect::<Vec<_>>())
        } else {
            encode_i64(dtype, data)
        };
        HostTensor::new(dtype, sizes, bytes)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost first.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Number of elements.
    pub fn len_elems(&self) -> usize {
        self.bytes.len() / self.dtype.size_bytes()
    }

    /// The elements, row-major, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same elements with other sizes.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshaped(&self, sizes: Vec<usize>) -> Result<HostTensor> {
        if shape::numel(&sizes)? != self.len_elems() {
            return Err(Error::invalid_input(format!("sizes {:?} cannot become {sizes:?}", self.sizes)));
        }
        Ok(HostTensor { dtype: self.dtype, sizes, bytes: Arc::clone(&self.bytes) })
    }

    /// Every element as a double (an `int64` beyond 2^53 is rounded).
    pub fn to_f64s(&self) -> Vec<f64> {
        if self.dtype.is_float() {
            decode_f64(self.dtype, &self.bytes)
        } else {
            decode_i64(self.dtype, &self.bytes).into_iter().map(|value| value as f64).collect()
        }
    }

    /// Every element as `f32`.
    pub fn to_f32s(&self) -> Vec<f32> {
        match self.dtype {
            DType::F32 => {
                self.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            _ => self.to_f64s().into_iter().map(|value| value as f32).collect(),
        }
    }

    /// Every element as an integer; floats are truncated towards zero.
    pub fn to_i64s(&self) -> Vec<i64> {
        if self.dtype.is_float() {
            decode_f64(self.dtype, &self.bytes).into_iter().map(|value| value as i64).collect()
        } else {
            decode_i64(self.dtype, &self.bytes)
        }
    }

    /// The same values as another dtype, converted as `torch.Tensor.to` does.
    ///
    /// # Errors
    /// None for tensors that [`HostTensor::new`] accepted.
    pub fn cast(&self, dtype: DType) -> Result<HostTensor> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        let sizes = self.sizes.clone();
        if self.dtype.is_float() {
            HostTensor::from_f64s(dtype, sizes, &self.to_f64s())
        } else {
            HostTensor::from_i64s(dtype, sizes, &self.to_i64s())
        }
    }
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        write!(f, "{}{:?} [", self.dtype, self.sizes)?;
        fn first<T: ToString>(values: Vec<T>) -> String {
            values.iter().take(SHOWN).map(T::to_string).collect::<Vec<_>>().join(", ")
        }
        // In the width of the dtype, so that no float shows digits that it does not have.
        f.write_str(&match self.dtype {
            DType::F64 => first(self.to_f64s()),
            dtype if dtype.is_float() => first(self.to_f32s()),
            _ => first(self.to_i64s()),
        })?;
        f.write_str(if self.len_elems() > SHOWN { ", ...]" } else { "]" })
    }
}

/// What goes in and out of a run: a tensor, a host scalar, or nothing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A tensor.
    Tensor(HostTensor),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Python's `None`.
    None,
}

impl Value {
    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&HostTensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// What kind of value it is, in a word.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Value::Tensor(_) => "tensor",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Bool(_) => "bool",
            Value::None => "None",
        }
    }
}

impl From<HostTensor> for Value {
    fn from(tensor: HostTensor) -> Value {
        Value::Tensor(tensor)
    }
}

impl From<Scalar> for Value {
    fn from(scalar: Scalar) -> Value {
        match scalar {
            Scalar::Int(value) => Value::Int(value),
            Scalar::Float(value) => Value::Float(value),
            Scalar::Bool(value) => Value::Bool(value),
        }
    }
}

/// Nearest half to a double. Rounded once: `f16::from_f64` goes through no intermediate.
fn half_bytes(value: f64) -> [u8; 2] {
    f16::from_f64(value).to_le_bytes()
}

fn encode_f64(dtype: DType, data: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F64 => data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::F16 => data.iter().flat_map(|&value| half_bytes(value)).collect(),
        DType::BF16 => data.iter().flat_map(|&value| bf16::from_f64(value).to_le_bytes()).collect(),
        _ => data.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
    }
}

fn encode_i64(dtype: DType, data: &[i64]) -> Vec<u8> {
    match dtype {
        DType::I64 => data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::I16 => data.iter().flat_map(|&value| (value as i16).to_le_bytes()).collect(),
        DType::I8 | DType::U8 => data.iter().map(|&value| value as u8).collect(),
        DType::Bool => data.iter().map(|&value| u8::from(value != 0)).collect(),
        _ => data.iter().flat_map(|&value| (value as i32).to_le_bytes()).collect(),
    }
}

fn decode_f64(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F64 => bytes
            .chunks_exact(8)
            .map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect(),
        DType::F16 => bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f64()).collect(),
        DType::BF16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f64()).collect(),
        _ => bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect(),
    }
}

fn decode_i64(dtype: DType, bytes: &[u8]) -> Vec<i64> {
    match dtype {
        DType::I64 => bytes
            .chunks_exact(8)
            .map(|b| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect(),
        DType::I16 => bytes.chunks_exact(2).map(|b| i64::from(i16::from_le_bytes([b[0], b[1]]))).collect(),
        DType::I8 => bytes.iter().map(|&b| i64::from(b as i8)).collect(),
        DType::U8 => bytes.iter().map(|&b| i64::from(b)).collect(),
        DType::Bool => bytes.iter().map(|&b| i64::from(b != 0)).collect(),
        _ => bytes.chunks_exact(4).map(|b| i64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_convert_values_not_bytes() {
        let ints = HostTensor::from_i64s(DType::I32, vec![4], &[2, -1, 0, 16_777_217]).unwrap();
        assert_eq!(ints.cast(DType::F32).unwrap().to_f32s(), [2.0, -1.0, 0.0, 16_777_216.0]);
        let floats = HostTensor::from_f32(&[3], &[-1.7, 2.9, -0.5]).unwrap();
        assert_eq!(floats.cast(DType::I32).unwrap().to_i64s(), [-1, 2, 0]);
        let wide = HostTensor::from_i64s(DType::I32, vec![3], &[300, -1, 256]).unwrap();
        assert_eq!(wide.cast(DType::U8).unwrap().to_i64s(), [44, 255, 0]);
        let truth = HostTensor::from_f32(&[3], &[-3.0, 0.0, 0.5]).unwrap();
        assert_eq!(truth.cast(DType::Bool).unwrap().to_i64s(), [1, 0, 1]);
    }

    #[test]
    fn a_wrong_length_is_refused() {
        assert!(HostTensor::new(DType::F32, vec![2, 2], vec![0; 12]).is_err());
        assert!(HostTensor::new(DType::F32, vec![usize::MAX, 2], vec![]).is_err());
    }
}
