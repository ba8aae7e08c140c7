//! What lies beside the codes: scales, zero points and biases of a quantised weight, in the order that kernels read.

use crate::base::{Error, HostTensor, Result};

/// The layout of a side table: a row for each panel of 4 rows of the weight. A row holds, for each group, 4 scales and,
/// with `has_zeros`, 4 zero points; then, with `has_bias`, 4 biases. What is past N is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Groups of a row of the weight, each with a scale of its own.
    pub groups: usize,
    /// Whether there are zero points other than 0.
    pub has_zeros: bool,
    /// Whether there is a bias.
    pub has_bias: bool,
}

/// What a side table holds.
#[derive(Clone, Debug, PartialEq)]
pub struct SideValues {
    /// `[N, groups]`.
    pub scales: Vec<f32>,
    /// `[N, groups]`; zeros where the table has none.
    pub zeros: Vec<f32>,
    /// `[N]`; zeros where the table has none.
    pub bias: Vec<f32>,
}

impl Side {
    fn group_len(self) -> usize {
        if self.has_zeros { 8 } else { 4 }
    }

    /// Floats of a panel.
    pub fn stride(self) -> usize {
        self.groups * self.group_len() + if self.has_bias { 4 } else { 0 }
    }

    /// Sizes of the table of a weight of `n` rows.
    pub fn sizes(self, n: usize) -> [usize; 2] {
        [n.div_ceil(4), self.stride()]
    }

    /// The table that holds `values`, which are for `n` rows.
    ///
    /// # Errors
    /// When a length does not fit.
    pub fn table(self, values: &SideValues, n: usize) -> Result<HostTensor> {
        let SideValues { scales, zeros, bias } = values;
        if scales.len() != n * self.groups || zeros.len() != scales.len() || bias.len() != n {
            return Err(Error::internal(format!("a side table of {n} rows is given other lengths")));
        }
        let [panels, stride] = self.sizes(n);
        let mut table = vec![0.0f32; panels * stride];
        for row in 0..n {
            let panel = &mut table[row / 4 * stride..][..stride];
            for group in 0..self.groups {
                let at = group * self.group_len() + row % 4;
                panel[at] = scales[row * self.groups + group];
                if self.has_zeros {
                    panel[at + 4] = zeros[row * self.groups + group];
                }
            }
            if self.has_bias {
                panel[stride - 4 + row % 4] = bias[row];
            }
        }
        HostTensor::from_f32(&[panels, stride], &table)
    }

    /// The inverse of [`Side::table`].
    ///
    /// # Errors
    /// When the table has another length.
    pub fn read(self, table: &[f32], n: usize) -> Result<SideValues> {
        let [panels, stride] = self.sizes(n);
        if table.len() != panels * stride {
            return Err(Error::internal(format!("a side table of {n} rows has another length")));
        }
        let mut values = SideValues { scales: Vec::new(), zeros: Vec::new(), bias: Vec::new() };
        for row in 0..n {
            let panel = &table[row / 4 * stride..][..stride];
            for group in 0..self.groups {
                let at = group * self.group_len() + row % 4;
                values.scales.push(panel[at]);
                values.zeros.push(if self.has_zeros { panel[at + 4] } else { 0.0 });
            }
            values.bias.push(if self.has_bias { panel[stride - 4 + row % 4] } else { 0.0 });
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_back_what_it_holds() {
        for (groups, has_zeros, has_bias) in
            [(1, false, false), (1, true, true), (3, true, false), (2, false, true)]
        {
            let side = Side { groups, has_zeros, has_bias };
            for n in [1, 4, 5, 9] {
                let numbers =
                    |count: usize, start: f32| (0..count).map(|i| start + i as f32).collect::<Vec<_>>();
                let values = SideValues {
                    scales: numbers(n * groups, 1.0),
                    zeros: if has_zeros { numbers(n * groups, 100.0) } else { vec![0.0; n * groups] },
                    bias: if has_bias { numbers(n, 1000.0) } else { vec![0.0; n] },
                };
                let table = side.table(&values, n).unwrap();
                assert_eq!(side.read(&table.to_f32s(), n).unwrap(), values);
            }
        }
    }
}
