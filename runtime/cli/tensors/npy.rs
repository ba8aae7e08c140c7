//! One NumPy array: a header, then the elements.

use anyhow::{Context, Result, anyhow, bail};
use npyz::{Endianness, NpyHeader, Order, TypeChar, TypeStr};
use vkdelegate::{DType, HostTensor};

/// Headers are padded so that the elements start at a multiple of this.
const ALIGNMENT: usize = 64;

/// Bytes before the text of a header of version 1.
const PREFIX_BYTES: usize = 10;

/// Reads an array in C or Fortran order.
pub fn read(bytes: &[u8]) -> Result<HostTensor> {
    let mut data = bytes;
    let header = NpyHeader::from_reader(&mut data).context("not a NumPy array")?;
    let dtype = match header.dtype() {
        npyz::DType::Plain(text) => dtype_of(&text)?,
        other => bail!("arrays of {} are not supported", other.descr()),
    };
    let sizes = header.shape().iter().map(|&size| usize::try_from(size)).collect::<Result<Vec<_>, _>>()?;
    if header.order() == Order::C || sizes.len() < 2 {
        return Ok(HostTensor::new(dtype, sizes, data.to_vec())?);
    }
    // In Fortran order the first dim moves fastest: the array is the transposition of a C array.
    let reversed: Vec<usize> = sizes.iter().rev().copied().collect();
    let stored = HostTensor::new(dtype, reversed, data.to_vec())?;
    Ok(HostTensor::new(dtype, sizes.clone(), transposed(stored.bytes(), &sizes, dtype.size_bytes()))?)
}

/// The C order of elements that lie in Fortran order.
fn transposed(data: &[u8], sizes: &[usize], width: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let count: usize = sizes.iter().product();
    for position in 0..count {
        let (mut rest, mut offset) = (position, 0);
        for dim in (0..sizes.len()).rev() {
            let stride: usize = sizes.get(..dim).unwrap_or_default().iter().product();
            offset += rest % sizes[dim] * stride;
            rest /= sizes[dim];
        }
        out.extend_from_slice(data.get(offset * width..(offset + 1) * width).unwrap_or_default());
    }
    out
}

fn dtype_of(text: &TypeStr) -> Result<DType> {
    let dtype = match (text.type_char(), text.size_field()) {
        (TypeChar::Float, 2) => DType::F16,
        (TypeChar::Float, 4) => DType::F32,
        (TypeChar::Float, 8) => DType::F64,
        (TypeChar::Int, 1) => DType::I8,
        (TypeChar::Int, 2) => DType::I16,
        (TypeChar::Int, 4) => DType::I32,
        (TypeChar::Int, 8) => DType::I64,
        (TypeChar::Uint, 1) => DType::U8,
        (TypeChar::Bool, 1) => DType::Bool,
        _ => bail!("arrays of {text} are not supported"),
    };
    if text.endianness() == Endianness::Big && dtype.size_bytes() > 1 {
        bail!("the array is big-endian; save it with .astype(array.dtype.newbyteorder('<'))");
    }
    Ok(dtype)
}

/// Writes an array of version 1 in C order.
pub fn write(tensor: &HostTensor) -> Result<Vec<u8>> {
    let descr = match tensor.dtype() {
        DType::F32 => "<f4",
        DType::F16 => "<f2",
        DType::F64 => "<f8",
        DType::I64 => "<i8",
        DType::I32 => "<i4",
        DType::I16 => "<i2",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::Bool => "|b1",
        DType::BF16 => return Err(anyhow!("NumPy has no bfloat16; write to a .safetensors file")),
    };
    let sizes: String = tensor.sizes().iter().map(|size| format!("{size}, ")).collect();
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", sizes.trim_end());
    let unpadded = PREFIX_BYTES + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    text.push('\n');
    let length = u16::try_from(text.len()).context("the tensor has too many dims")?;
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(tensor.bytes());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fortran_order_is_understood() {
        let c = HostTensor::from_i64(&[2, 3], &[0, 1, 2, 3, 4, 5]).unwrap();
        let f = HostTensor::from_i64(&[2, 3], &[0, 3, 1, 4, 2, 5]).unwrap();
        let text = String::from_utf8_lossy(&write(&f).unwrap()[..PREFIX_BYTES + 118]).into_owned();
        assert!(text.contains("'fortran_order': False"));
        let mut bytes = write(&f).unwrap();
        let at = bytes.windows(5).position(|window| window == b"False").unwrap();
        bytes[at..at + 5].copy_from_slice(b"True ");
        assert_eq!(read(&bytes).unwrap(), c);
    }

    #[test]
    fn zero_dims_and_scalars_have_headers() {
        for sizes in [vec![], vec![0], vec![3], vec![2, 0, 4]] {
            let count: usize = sizes.iter().product();
            let tensor = HostTensor::from_i64s(DType::I64, sizes, &vec![7; count]).unwrap();
            assert_eq!(read(&write(&tensor).unwrap()).unwrap(), tensor);
        }
    }

    #[test]
    fn damaged_arrays_are_refused() {
        let bytes = write(&HostTensor::from_i64(&[2], &[1, 2]).unwrap()).unwrap();
        for len in [0, 5, 20, bytes.len() - 1] {
            assert!(read(&bytes[..len]).is_err(), "{len} bytes");
        }
    }
}
