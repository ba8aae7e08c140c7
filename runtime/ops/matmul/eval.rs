//! Matrix products on the host: sums in 64 bits, in a loop order that reads both matrices row by row.

use super::Form;
use crate::base::{HostTensor, Result, shape};

/// The sums of `a b`, row-major over the result's matrices. Operands are values with sizes.
///
/// # Errors
/// When the sizes are not those that `form` was made of.
pub fn product(form: &Form, a: (&[f64], &[usize]), b: (&[f64], &[usize])) -> Result<Vec<f64>> {
    let mut sums = vec![0.0; shape::numel(&form.matrices())?];
    for_each_batch(form, a.1, b.1, |batch, a_start, b_start| {
        let rows = &mut sums[batch * form.m * form.n..][..form.m * form.n];
        if rows.is_empty() || form.k == 0 {
            return;
        }
        let a_rows = a.0[a_start..][..form.m * form.k].chunks_exact(form.k);
        for (row, a_row) in rows.chunks_exact_mut(form.n).zip(a_rows) {
            let b_rows = b.0[b_start..][..form.k * form.n].chunks_exact(form.n);
            for (&factor, b_row) in a_row.iter().zip(b_rows) {
                add_scaled(row, factor, b_row);
            }
        }
    })?;
    Ok(sums)
}

fn add_scaled(row: &mut [f64], factor: f64, b_row: &[f64]) {
    for (sum, &term) in row.iter_mut().zip(b_row) {
        *sum += factor * term;
    }
}

/// The sums of `a b` of integers, which wrap at 64 bits.
///
/// # Errors
/// As [`product`].
pub fn product_of_ints(form: &Form, a: &HostTensor, b: &HostTensor) -> Result<Vec<i64>> {
    let (a_values, b_values) = (a.to_i64s(), b.to_i64s());
    let mut sums = vec![0i64; shape::numel(&form.matrices())?];
    for_each_batch(form, a.sizes(), b.sizes(), |batch, a_start, b_start| {
        let rows = &mut sums[batch * form.m * form.n..][..form.m * form.n];
        for (index, sum) in rows.iter_mut().enumerate() {
            let (row, column) = (index / form.n, index % form.n);
            for k in 0..form.k {
                let term = a_values[a_start + row * form.k + k]
                    .wrapping_mul(b_values[b_start + k * form.n + column]);
                *sum = sum.wrapping_add(term);
            }
        }
    })?;
    Ok(sums)
}

/// Adds `beta * bias`, broadcast to the result's matrices; nothing when `beta` is 0.
///
/// # Errors
/// When the bias does not broadcast.
pub fn add_bias(sums: &mut [f64], form: &Form, bias: &HostTensor, beta: f64) -> Result<()> {
    if beta == 0.0 {
        return Ok(());
    }
    let matrices = form.matrices();
    let own = shape::contiguous_strides(bias.sizes());
    let strides = shape::broadcast_strides(bias.sizes(), &own, &matrices)?;
    let values = bias.to_f64s();
    let mut sums = sums.iter_mut();
    shape::for_each_offset(&matrices, &strides, 0, |offset| {
        if let Some(sum) = sums.next() {
            *sum += beta * values[offset];
        }
    });
    Ok(())
}

/// Calls `visit` for each batch with its number and where the operands' matrices start.
fn for_each_batch(
    form: &Form,
    a_sizes: &[usize],
    b_sizes: &[usize],
    mut visit: impl FnMut(usize, usize, usize),
) -> Result<()> {
    let starts = |sizes: &[usize]| -> Result<Vec<usize>> {
        let batch = &sizes[..sizes.len().saturating_sub(2)];
        let strides = shape::contiguous_strides(sizes);
        let strides = shape::broadcast_strides(batch, &strides[..batch.len()], &form.batch)?;
        let mut starts = Vec::new();
        shape::for_each_offset(&form.batch, &strides, 0, |start| starts.push(start));
        Ok(starts)
    };
    let (a_starts, b_starts) = (starts(a_sizes)?, starts(b_sizes)?);
    for (batch, (a_start, b_start)) in a_starts.into_iter().zip(b_starts).enumerate() {
        visit(batch, a_start, b_start);
    }
    Ok(())
}
