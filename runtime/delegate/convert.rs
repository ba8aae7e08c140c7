//! Between host tensors and the elements that device memory holds.

use half::{bf16, f16};

use crate::{
    base::{DType, Error, HostTensor, Result},
    ops::{Element, Tensor},
};

/// Writes the elements of `host` as `tensor` holds them: in order, and without reading `out`, which may be device memory.
///
/// # Errors
/// An integer that does not fit the 32 bits of the device; a part may be written then.
pub fn to_device(host: &HostTensor, tensor: &Tensor, out: &mut [u8]) -> Result<()> {
    let bytes = host.bytes();
    match (host.dtype(), tensor.element) {
        (DType::F32, Element::F32) | (DType::F16, Element::F16) | (DType::I32, Element::I32) => {
            out.copy_from_slice(bytes);
        }
        (DType::F32, Element::F16) => {
            each(bytes, out, |word| f16::from_f32(f32::from_le_bytes(word)).to_le_bytes());
        }
        (DType::F16, Element::F32) => {
            each(bytes, out, |half| f16::from_le_bytes(half).to_f32().to_le_bytes());
        }
        (DType::BF16, Element::F32) => {
            each(bytes, out, |half| bf16::from_le_bytes(half).to_f32().to_le_bytes());
        }
        (DType::I64, Element::I32) => {
            let mut wide = None;
            each(bytes, out, |element| {
                let value = i64::from_le_bytes(element);
                let narrow = i32::try_from(value);
                wide = wide.or(narrow.is_err().then_some(value));
                narrow.unwrap_or_default().to_le_bytes()
            });
            if let Some(wide) = wide {
                return Err(Error::invalid_input(format!(
                    "holds {wide}, which does not fit the 32 bits that integers have on the device"
                )));
            }
        }
        (_, Element::I32) => write_each(host.to_i64s(), out, |value| (value as i32).to_le_bytes()),
        (_, Element::F32) => write_each(host.to_f32s(), out, f32::to_le_bytes),
        (_, Element::F16) => {
            write_each(host.to_f32s(), out, |value| f16::from_f32(value).to_le_bytes());
        }
    }
    Ok(())
}

/// Converts element by element, without a copy between.
fn each<const FROM: usize, const TO: usize>(
    bytes: &[u8],
    out: &mut [u8],
    mut convert: impl FnMut([u8; FROM]) -> [u8; TO],
) {
    let (elements, _) = bytes.as_chunks::<FROM>();
    for (slot, &element) in out.chunks_exact_mut(TO).zip(elements) {
        slot.copy_from_slice(&convert(element));
    }
}

fn write_each<T, const WIDTH: usize>(values: Vec<T>, out: &mut [u8], bytes: impl Fn(T) -> [u8; WIDTH]) {
    for (slot, value) in out.chunks_exact_mut(WIDTH).zip(values) {
        slot.copy_from_slice(&bytes(value));
    }
}

/// The host tensor of the elements in `bytes`, which hold `tensor` contiguously.
///
/// # Errors
/// When `bytes` is not as long as the tensor's sizes ask for.
pub fn to_host(tensor: &Tensor, bytes: &[u8]) -> Result<HostTensor> {
    let words = || bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
    let halves = || bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]));
    let data: Vec<u8> = match (tensor.element, tensor.dtype) {
        (Element::F32, DType::F32) | (Element::F16, DType::F16) | (Element::I32, DType::I32) => {
            bytes.to_vec()
        }
        (Element::F32, DType::F16) => {
            words().flat_map(|word| f16::from_f32(f32::from_le_bytes(word)).to_le_bytes()).collect()
        }
        (Element::F32, DType::BF16) => {
            words().flat_map(|word| bf16::from_f32(f32::from_le_bytes(word)).to_le_bytes()).collect()
        }
        (Element::F32, DType::F64) => {
            words().flat_map(|word| f64::from(f32::from_le_bytes(word)).to_le_bytes()).collect()
        }
        (Element::F16, DType::F32) => halves().flat_map(|half| half.to_f32().to_le_bytes()).collect(),
        (Element::I32, DType::I64) => {
            words().flat_map(|word| i64::from(i32::from_le_bytes(word)).to_le_bytes()).collect()
        }
        (Element::I32, DType::I16) => {
            words().flat_map(|word| (i32::from_le_bytes(word) as i16).to_le_bytes()).collect()
        }
        (Element::I32, DType::I8 | DType::U8) => words().map(|word| word[0]).collect(),
        (Element::I32, DType::Bool) => words().map(|word| u8::from(word != [0; 4])).collect(),
        (element, dtype) => return Err(Error::internal(format!("{element:?} elements cannot be {dtype}"))),
    };
    HostTensor::new(tensor.dtype, tensor.sizes.clone(), data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::StorageId;

    fn tensor(dtype: DType, element: Element, len: usize) -> Tensor {
        Tensor { storage: StorageId(0), dtype, element, sizes: vec![len], strides: vec![1], offset_elems: 0 }
    }

    #[test]
    fn every_pair_round_trips() {
        let pairs = [
            (DType::F32, Element::F32),
            (DType::F32, Element::F16),
            (DType::F16, Element::F16),
            (DType::F16, Element::F32),
            (DType::BF16, Element::F32),
            (DType::I64, Element::I32),
            (DType::I32, Element::I32),
            (DType::I16, Element::I32),
            (DType::I8, Element::I32),
            (DType::U8, Element::I32),
            (DType::Bool, Element::I32),
        ];
        for (dtype, element) in pairs {
            let host = HostTensor::from_i64s(dtype, vec![3], &[1, 0, 1]).unwrap();
            let tensor = tensor(dtype, element, 3);
            let mut bytes = vec![0u8; 3 * element.size_bytes()];
            to_device(&host, &tensor, &mut bytes).unwrap();
            assert_eq!(to_host(&tensor, &bytes).unwrap(), host, "{dtype} as {element:?}");
        }
    }

    #[test]
    fn a_wide_integer_is_an_error() {
        let host = HostTensor::from_i64(&[2], &[1, (1 << 31) + 5]).unwrap();
        let error = to_device(&host, &tensor(DType::I64, Element::I32, 2), &mut [0u8; 8]).unwrap_err();
        assert!(error.to_string().contains("2147483653"), "{error}");
    }
}
