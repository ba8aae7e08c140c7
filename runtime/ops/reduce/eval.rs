//! Reductions on the host.

use super::Function;

/// The rows of `values`, `cols` each, reduced in double precision.
pub fn floats(values: &[f64], rows: usize, cols: usize, function: Function) -> Vec<f64> {
    (0..rows).map(|row| float(&values[row * cols..(row + 1) * cols], function)).collect()
}

/// The rows of `values`, `cols` each, reduced in wrapping 64-bit integers.
pub fn ints(values: &[i64], rows: usize, cols: usize, function: Function) -> Vec<i64> {
    (0..rows).map(|row| int(&values[row * cols..(row + 1) * cols], function)).collect()
}

/// One row, reduced in double precision.
pub fn float(row: &[f64], function: Function) -> f64 {
    // From 0.0: Rust's own sum of nothing is -0.0.
    let sum = |term: fn(f64) -> f64| row.iter().fold(0.0, |sum, &v| sum + term(v));
    let divisor = function.divisor(row.len());
    let squared_distances = || {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>()
    };
    match function {
        Function::Sum => sum(|v| v),
        Function::Mean => sum(|v| v) / divisor,
        Function::Prod => row.iter().product(),
        Function::Amax => largest(row.iter().copied()),
        Function::Amin => -largest(row.iter().map(|v| -v)),
        Function::Var { .. } => squared_distances() / divisor,
        Function::Std { .. } => (squared_distances() / divisor).sqrt(),
        Function::Rstd { eps } => 1.0 / (squared_distances() / divisor + eps).sqrt(),
        Function::Rrms { eps } => 1.0 / (sum(|v| v * v) / divisor + eps).sqrt(),
        Function::NonZeros => sum(|v| f64::from(u8::from(v != 0.0))),
        Function::SumOfMagnitudes => sum(f64::abs),
        Function::Euclidean => sum(|v| v * v).sqrt(),
        Function::LargestMagnitude => largest(row.iter().map(|v| v.abs())),
        Function::LeastMagnitude => -largest(row.iter().map(|v| -v.abs())),
        Function::LogSumExp => log_sum_exp(row),
        Function::Any | Function::All | Function::CountNonzero => f64::NAN,
    }
}

/// The largest value, NaN when there is one; -inf of none.
pub fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, |most, v| if most.is_nan() || v <= most { most } else { v })
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let most = largest(row.iter().copied());
    if !most.is_finite() {
        return most;
    }
    most + row.iter().map(|v| (v - most).exp()).sum::<f64>().ln()
}

/// One row, reduced in wrapping 64-bit integers.
pub fn int(row: &[i64], function: Function) -> i64 {
    let values = row.iter().copied();
    match function {
        Function::Prod => values.fold(1, i64::wrapping_mul),
        Function::Amax | Function::Any => values.max().unwrap_or(0),
        Function::Amin | Function::All => values.min().unwrap_or(1),
        _ => values.fold(0, i64::wrapping_add),
    }
}
