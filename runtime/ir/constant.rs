//! Constants of a program: where their bytes are and how a tensor lies in them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::base::{DType, Error, HostTensor, Result, shape};

crate::typed_id!(
    /// A constant of one graph.
    ConstantId,
    "const"
);

/// Says of two payloads whether they are the same bytes; unique within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PayloadId(u64);

impl PayloadId {
    /// An id that no other payload has.
    pub fn unique() -> PayloadId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        PayloadId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Bytes that constants lie in. Several constants may share one payload.
pub trait Payload: Send + Sync + fmt::Debug {
    /// The identity of the bytes.
    fn id(&self) -> PayloadId;
    /// How many bytes there are; known without reading them.
    fn len_bytes(&self) -> usize;
    /// The bytes, read and checked at the first call.
    ///
    /// # Errors
    /// When the file is damaged.
    fn bytes(&self) -> Result<&[u8]>;
}

/// A payload in memory of its own, for folded constants and graphs built in Rust.
#[derive(Debug)]
pub struct InlinePayload {
    id: PayloadId,
    tensor: HostTensor,
}

impl InlinePayload {
    /// The bytes of `tensor` as a payload.
    pub fn new(tensor: HostTensor) -> InlinePayload {
        InlinePayload { id: PayloadId::unique(), tensor }
    }
}

impl Payload for InlinePayload {
    fn id(&self) -> PayloadId {
        self.id
    }

    fn len_bytes(&self) -> usize {
        self.tensor.bytes().len()
    }

    fn bytes(&self) -> Result<&[u8]> {
        Ok(self.tensor.bytes())
    }
}

/// A tensor that the program holds: dtype, sizes, strides and offset over a payload.
#[derive(Clone, Debug)]
pub struct Constant {
    name: String,
    dtype: DType,
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset_elems: usize,
    payload: Arc<dyn Payload>,
}

impl Constant {
    /// A strided tensor over `payload`; `strides` and `offset_elems` are in elements.
    ///
    /// # Errors
    /// When an element lies outside the payload.
    pub fn new(
        name: impl Into<String>,
        dtype: DType,
        sizes: Vec<usize>,
        strides: Vec<usize>,
        offset_elems: usize,
        payload: Arc<dyn Payload>,
    ) -> Result<Constant> {
        let name = name.into();
        if sizes.len() != strides.len() {
            return Err(Error::bad_file(format!(
                "constant `{name}`: {} sizes but {} strides",
                sizes.len(),
                strides.len()
            )));
        }
        shape::numel(&sizes)?;
        let end_bytes = match shape::extent_elems(&sizes, &strides)? {
            0 => Some(0),
            extent => extent.checked_add(offset_elems).and_then(|end| end.checked_mul(dtype.size_bytes())),
        };
        match end_bytes {
            Some(end) if end <= payload.len_bytes() => {}
            _ => {
                return Err(Error::bad_file(format!(
                    "constant `{name}`: sizes {sizes:?}, strides {strides:?}, offset {offset_elems} of {dtype} reach past its payload of {} bytes",
                    payload.len_bytes()
                )));
            }
        }
        Ok(Constant { name, dtype, sizes, strides, offset_elems, payload })
    }

    /// A constant with a payload of its own.
    pub fn from_tensor(name: impl Into<String>, tensor: HostTensor) -> Constant {
        Constant {
            name: name.into(),
            dtype: tensor.dtype(),
            sizes: tensor.sizes().to_vec(),
            strides: shape::contiguous_strides(tensor.sizes()),
            offset_elems: 0,
            payload: Arc::new(InlinePayload::new(tensor)),
        }
    }

    /// The same payload seen with other sizes, strides and offset.
    ///
    /// # Errors
    /// When an element would lie outside the payload.
    pub fn restrided(
        &self,
        name: impl Into<String>,
        sizes: Vec<usize>,
        strides: Vec<usize>,
        offset_elems: usize,
    ) -> Result<Constant> {
        Constant::new(name, self.dtype, sizes, strides, offset_elems, Arc::clone(&self.payload))
    }

    /// Fully qualified name in the program, such as `encoder.layer.0.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost first.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Strides in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Elements before the first one.
    pub fn offset_elems(&self) -> usize {
        self.offset_elems
    }

    /// The payload that it lies in.
    pub fn payload(&self) -> &Arc<dyn Payload> {
        &self.payload
    }

    /// Bytes that the elements take when laid out contiguously.
    pub fn len_bytes(&self) -> usize {
        self.sizes.iter().product::<usize>().saturating_mul(self.dtype.size_bytes())
    }

    /// Reads the elements into a contiguous host tensor.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn to_tensor(&self) -> Result<HostTensor> {
        let bytes = self.payload.bytes()?;
        let width = self.dtype.size_bytes();
        if shape::is_contiguous(&self.sizes, &self.strides) {
            let start = if self.len_bytes() == 0 { 0 } else { self.offset_elems * width };
            let range = bytes.get(start..start + self.len_bytes());
            let range =
                range.ok_or_else(|| Error::internal(format!("constant `{}` left its payload", self.name)))?;
            return HostTensor::new(self.dtype, self.sizes.clone(), range.to_vec());
        }
        let mut out = Vec::with_capacity(self.len_bytes());
        shape::for_each_offset(&self.sizes, &self.strides, self.offset_elems, |offset| {
            out.extend_from_slice(&bytes[offset * width..(offset + 1) * width]);
        });
        HostTensor::new(self.dtype, self.sizes.clone(), out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_respected_and_bounded() {
        let whole =
            Constant::from_tensor("w", HostTensor::from_f32(&[2, 3], &[0., 1., 2., 3., 4., 5.]).unwrap());
        let transposed = whole.restrided("wt", vec![3, 2], vec![1, 3], 0).unwrap();
        assert_eq!(transposed.to_tensor().unwrap().to_f32s(), [0., 3., 1., 4., 2., 5.]);
        assert!(whole.restrided("past", vec![3, 2], vec![1, 3], 1).is_err());
        assert!(whole.restrided("wraps", vec![usize::MAX, 2], vec![usize::MAX, 1], 0).is_err());
        assert_eq!(
            whole.restrided("empty", vec![0, 9], vec![9, 1], 99).unwrap().to_tensor().unwrap().len_elems(),
            0
        );
    }
}
