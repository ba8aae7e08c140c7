//! Reduces every row of a strided tensor to one number.
//!
//! Element c of row r is at `strided_offset(r, row_sizes, x_row_strides) + col_offset(c, cols, inner, x_col_strides)`;
//! row r goes to y[r]. mean is sum / divisor; var, std and rstd = 1 / sqrt(var + eps) take the squared distances from
//! the mean of the row in a second pass, over `divisor`; rrms = 1 / sqrt(sum(x^2) / divisor + eps). norm0 counts
//! what is not zero; norm1 and norm2 are the usual ones; norm_max and norm_min the largest and least magnitude.
//! logsumexp subtracts the maximum first.
//! axis dtype = f32 f16
//! axis width = 1 4
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = sum mean prod amax amin var std rstd rrms norm0 norm1 norm2 norm_max norm_min logsumexp
//! local local_x
//! shared 512
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/rows.glsl"
#include "lib/strided.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) ROW_PARAMS uint inner; float divisor; float eps; uint row_sizes[4]; uint x_row_strides[4]; uint x_col_strides[2];)

const bool centred = op == OP_VAR || op == OP_STD || op == OP_RSTD;

float identity() {
    switch (op) {
        case OP_PROD: return 1.0;
        case OP_AMAX: case OP_LOGSUMEXP: return -INFINITY;
        case OP_AMIN: case OP_NORM_MIN: return INFINITY;
    }
    return 0.0;
}

// What an element adds to the first pass.
float term(float v) {
    switch (op) {
        case OP_NORM0: return v != 0.0 || is_nan(v) ? 1.0 : 0.0;
        case OP_NORM1: case OP_NORM_MAX: case OP_NORM_MIN: return abs(v);
        case OP_NORM2: case OP_RRMS: return v * v;
    }
    return v;
}

float combine(float a, float b) {
    switch (op) {
        case OP_PROD: return a * b;
        case OP_AMAX: case OP_NORM_MAX: case OP_LOGSUMEXP: return nan_max(a, b);
        case OP_AMIN: case OP_NORM_MIN: return nan_min(a, b);
    }
    return a + b;
}

#if WIDTH == 4
float combined(float a, vec4 v) {
    return combine(combine(combine(combine(a, term(v.x)), term(v.y)), term(v.z)), term(v.w));
}
vec4 exp_of(vec4 v) { return vec4(safe_exp(v.x), safe_exp(v.y), safe_exp(v.z), safe_exp(v.w)); }
#else
float combined(float a, float v) { return combine(a, term(v)); }
float exp_of(float v) { return safe_exp(v); }
#endif

ROW_COMBINE(row_combine, float, combine)
ROW_COMBINE(row_sum, float, ROW_ADD)

// Drivers are free with divisions by zero: a mean of nothing is NaN.
float divided(float a, float b) {
    if (b != 0.0) return a / b;
    return a == 0.0 || is_nan(a) ? NAN : (a > 0.0 ? INFINITY : -INFINITY);
}

float finished(float first, float second) {
    switch (op) {
        case OP_MEAN: return divided(first, divisor);
        case OP_VAR: return divided(second, divisor);
        case OP_STD: return sqrt(divided(second, divisor));
        case OP_RSTD: return 1.0 / sqrt(divided(second, divisor) + eps);
        case OP_RRMS: return 1.0 / sqrt(divided(first, divisor) + eps);
        case OP_NORM2: return sqrt(first);
        case OP_LOGSUMEXP: return is_finite(first) ? first + safe_log(second) : first;
    }
    return first;
}

void main() {
    uint end = ROW_END();
    uint from = end > 0u ? strided_offset(ROW(), row_sizes, x_row_strides) : 0u;

    uint begin = LANE() * WIDTH;
    uint stride = lanes * WIDTH;

    float first = identity();
    for (uint c = begin; c < end; c += stride) {
        first = combined(first, LOAD_STEP(x, from + col_offset(c, cols, inner, x_col_strides)));
    }
    first = row_combine(first);

    float second = 0.0;
    if (centred || op == OP_LOGSUMEXP) {
        float centre = centred ? first / float(cols) : first;
        for (uint c = begin; c < end; c += stride) {
            STEP d = LOAD_STEP(x, from + col_offset(c, cols, inner, x_col_strides)) - centre;
            second += step_sum(centred ? d * d : exp_of(d));
        }
        second = row_sum(second);
    }
    if (ROW() < rows && LANE() == 0u) STOREF(y, ROW(), finished(first, second));
}
