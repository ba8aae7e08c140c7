//! What lies beside the codes of a weight that is multiplied in integers: the table of [`Side`], and sums of codes.

use crate::{
    base::{DType, Error, HostTensor, Result},
    ir::Constant,
    ops::{Side, SideValues},
};

/// Zero points further from 0 than this, after the codes' offset, are not taken: kernels rely on the bound.
const MAX_ZERO: f32 = 128.0;

/// The layout of a side table with sums: a row of int32 for each panel of 4 rows of the weight. A row holds, for each
/// group, the bits of 4 scales (float32), 4 sums of the signed codes and, with `has_zeros`, the bits of 4 zero points;
/// then, with `has_bias`, the bits of 4 biases. What is past N is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DotSide(pub Side);

impl DotSide {
    fn group_len(self) -> usize {
        if self.0.has_zeros { 12 } else { 8 }
    }

    /// Words of a panel.
    pub fn stride(self) -> usize {
        self.0.groups * self.group_len() + if self.0.has_bias { 4 } else { 0 }
    }

    /// Sizes of the table of a weight of `n` rows.
    pub fn sizes(self, n: usize) -> [usize; 2] {
        [n.div_ceil(4), self.stride()]
    }

    /// The table that holds `values` and `sums`, of sizes `[N, groups]`, for `n` rows. See [`code_sums`].
    ///
    /// # Errors
    /// When a length does not fit, or a zero point lies far outside the codes: such a weight is multiplied in floats.
    pub fn table(self, values: &SideValues, sums: &[i32], n: usize) -> Result<HostTensor> {
        let SideValues { scales, zeros, bias } = values;
        let count = n * self.0.groups;
        if scales.len() != count || zeros.len() != count || sums.len() != count || bias.len() != n {
            return Err(Error::internal(format!("a side table of {n} rows is given other lengths")));
        }
        if let Some(zero) = zeros.iter().find(|zero| zero.is_nan() || zero.abs() > MAX_ZERO) {
            return Err(Error::unsupported(format!("a zero point is {zero}, which is no code")));
        }
        let [panels, stride] = self.sizes(n);
        let bits = |value: f32| i64::from(value.to_bits() as i32);
        let mut table = vec![0i64; panels * stride];
        for row in 0..n {
            let panel = &mut table[row / 4 * stride..][..stride];
            for group in 0..self.0.groups {
                let (at, from) = (group * self.group_len() + row % 4, row * self.0.groups + group);
                panel[at] = bits(scales[from]);
                panel[at + 4] = i64::from(sums[from]);
                if self.0.has_zeros {
                    panel[at + 8] = bits(zeros[from]);
                }
            }
            if self.0.has_bias {
                panel[stride - 4 + row % 4] = bits(bias[row]);
            }
        }
        HostTensor::from_i64s(DType::I32, vec![panels, stride], &table)
    }

    /// The inverse of [`DotSide::table`].
    ///
    /// # Errors
    /// When the table has another length.
    pub fn read(self, table: &[i64], n: usize) -> Result<(SideValues, Vec<i32>)> {
        let [panels, stride] = self.sizes(n);
        if table.len() != panels * stride {
            return Err(Error::internal(format!("a side table of {n} rows has another length")));
        }
        let float = |word: i64| f32::from_bits(word as u32);
        let mut values = SideValues { scales: Vec::new(), zeros: Vec::new(), bias: Vec::new() };
        let mut sums = Vec::new();
        for row in 0..n {
            let panel = &table[row / 4 * stride..][..stride];
            for group in 0..self.0.groups {
                let at = group * self.group_len() + row % 4;
                values.scales.push(float(panel[at]));
                sums.push(panel[at + 4] as i32);
                values.zeros.push(if self.0.has_zeros { float(panel[at + 8]) } else { 0.0 });
            }
            values.bias.push(if self.0.has_bias { float(panel[stride - 4 + row % 4]) } else { 0.0 });
        }
        Ok((values, sums))
    }
}

/// Sums of `code - offset` over each row and group of a matrix `[N, K]` of codes, in sizes `[N, groups]`; they wrap at
/// 32 bits. Reads the bytes where they are.
///
/// # Errors
/// When the codes are no matrix of int8 or uint8, the groups do not divide the columns, or the file is damaged.
pub fn code_sums(codes: &Constant, offset: u8, groups: usize) -> Result<Vec<i32>> {
    let (&[n, k], DType::I8 | DType::U8) = (codes.sizes(), codes.dtype()) else {
        return Err(Error::internal("codes are no matrix of int8 or uint8"));
    };
    if groups == 0 || !k.is_multiple_of(groups) {
        return Err(Error::internal(format!("{groups} groups do not divide {k} columns")));
    }
    let (bytes, strides) = (codes.payload().bytes()?, codes.strides());
    let mut sums = vec![0i32; n * groups];
    for row in 0..n {
        for column in 0..k {
            let at = codes.offset_elems() + row * strides[0] + column * strides[1];
            let byte = bytes
                .get(at)
                .copied()
                .ok_or_else(|| Error::internal(format!("constant `{}` left its payload", codes.name())))?;
            let code = if codes.dtype() == DType::U8 { i32::from(byte) } else { i32::from(byte as i8) };
            let sum = &mut sums[row * groups + column / (k / groups)];
            *sum = sum.wrapping_add(code - i32::from(offset));
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_back_what_it_holds() {
        for (groups, has_zeros, has_bias) in
            [(1, false, false), (1, true, true), (3, true, false), (2, false, true)]
        {
            let side = DotSide(Side { groups, has_zeros, has_bias });
            for n in [1, 4, 5, 9] {
                let numbers =
                    |count: usize, start: f32| (0..count).map(|i| start + i as f32).collect::<Vec<_>>();
                let values = SideValues {
                    scales: numbers(n * groups, 1.5),
                    zeros: if has_zeros { numbers(n * groups, -20.5) } else { vec![0.0; n * groups] },
                    bias: if has_bias { numbers(n, 1000.0) } else { vec![0.0; n] },
                };
                let sums: Vec<i32> = (0..n * groups).map(|i| i as i32 * 65_521 - 40_000_001).collect();
                let table = side.table(&values, &sums, n).unwrap();
                assert_eq!(side.read(&table.to_i64s(), n).unwrap(), (values, sums));
            }
        }
    }

    #[test]
    fn zero_points_far_from_the_codes_are_refused() {
        let side = DotSide(Side { groups: 1, has_zeros: true, has_bias: false });
        for zero in [129.0, f32::NAN, f32::NEG_INFINITY] {
            let values = SideValues { scales: vec![1.0], zeros: vec![zero], bias: vec![0.0] };
            assert!(side.table(&values, &[0], 1).is_err(), "{zero}");
        }
    }

    #[test]
    fn sums_are_of_rows_and_groups() {
        let bytes = [1u8, 2, 3, 255, 128, 127];
        let tensor = |dtype| HostTensor::new(dtype, vec![2, 3], bytes.to_vec()).unwrap();
        let codes = |dtype| Constant::from_tensor("codes", tensor(dtype));
        assert_eq!(code_sums(&codes(DType::I8), 0, 1).unwrap(), [6, -2]);
        assert_eq!(code_sums(&codes(DType::U8), 128, 3).unwrap(), [-127, -126, -125, 127, 0, -1]);
        let turned = codes(DType::I8).restrided("turned", vec![3, 2], vec![1, 3], 0).unwrap();
        assert_eq!(code_sums(&turned, 0, 1).unwrap(), [0, -126, 130]);
        assert!(code_sums(&codes(DType::I8), 0, 2).is_err());
    }
}
