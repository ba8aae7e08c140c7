//! Compares tensors as the fixtures ask: shapes, ints and bools exactly, floats within a tolerance.

use vkdelegate::base::HostTensor;

/// `|got - want| <= atol + rtol * |want|`; NaN equals NaN, an infinity equals itself.
pub fn close(got: f64, want: f64, rtol: f64, atol: f64) -> bool {
    if got.is_nan() || want.is_nan() {
        return got.is_nan() && want.is_nan();
    }
    if got.is_infinite() || want.is_infinite() {
        return got == want;
    }
    (got - want).abs() <= atol + rtol * want.abs()
}

/// `Ok` when `got` is `want` within the tolerance, else a text that names the first difference.
pub fn tensors(got: &HostTensor, want: &HostTensor, rtol: f64, atol: f64) -> Result<(), String> {
    if got.dtype() != want.dtype() || got.sizes() != want.sizes() {
        return Err(format!("got {}{:?}, want {}{:?}", got.dtype(), got.sizes(), want.dtype(), want.sizes()));
    }
    if !got.dtype().is_float() {
        let (got, want) = (got.to_i64s(), want.to_i64s());
        return match got.iter().zip(&want).position(|(g, w)| g != w) {
            Some(index) => Err(format!("element {index}: got {}, want {}", got[index], want[index])),
            None => Ok(()),
        };
    }
    let (got, want) = (got.to_f64s(), want.to_f64s());
    match got.iter().zip(&want).position(|(&g, &w)| !close(g, w, rtol, atol)) {
        Some(index) => Err(format!("element {index}: got {}, want {}", got[index], want[index])),
        None => Ok(()),
    }
}
