//! Softmax of every row, or its logarithm.
//!
//! Element c of row r is at `strided_offset(r, row_sizes, x_row_strides) + c * x_col_stride`, and so in y.
//! The maximum of a row is subtracted first. A row of -inf gives NaN, with `op` safe_softmax zeros.
//! axis dtype = f32 f16
//! axis width = 1 4
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = softmax log_softmax safe_softmax
//! local local_x
//! shared 512
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/rows.glsl"
#include "lib/strided.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) ROW_PARAMS uint x_col_stride; uint y_col_stride; uint row_sizes[4]; uint x_row_strides[4]; uint y_row_strides[4];)

ROW_COMBINE(row_max, float, nan_max)
ROW_COMBINE(row_sum, float, ROW_ADD)

// exp of what is not above 0. NaN comes up in rows without a finite maximum only, and is not used there.
float exp_below(float v) { return v < -103.972 ? 0.0 : exp(v); }
float largest_of(float most, float v) { return v > most || is_nan(v) ? v : most; }
#if WIDTH == 4
vec4 exp_below(vec4 v) { return vec4(exp_below(v.x), exp_below(v.y), exp_below(v.z), exp_below(v.w)); }
float largest_of(float most, vec4 v) {
    return largest_of(largest_of(largest_of(largest_of(most, v.x), v.y), v.z), v.w);
}
#endif

void main() {
    uint end = ROW_END();
    uint from = end > 0u ? strided_offset(ROW(), row_sizes, x_row_strides) : 0u;
    uint to = end > 0u ? strided_offset(ROW(), row_sizes, y_row_strides) : 0u;
    uint begin = LANE() * WIDTH;
    uint stride = lanes * WIDTH;

    float largest = -INFINITY;
    for (uint c = begin; c < end; c += stride) largest = largest_of(largest, LOAD_STEP(x, from + c * x_col_stride));
    largest = row_max(largest);

    float sum = 0.0;
    for (uint c = begin; c < end; c += stride) {
        sum += step_sum(exp_below(LOAD_STEP(x, from + c * x_col_stride) - largest));
    }
    sum = row_sum(sum);

    // Without a finite maximum there is no quotient: the row is NaN throughout, whatever the driver makes of inf - inf.
    bool defined = is_finite(largest);
    float otherwise = op == OP_SAFE_SOFTMAX && largest == -INFINITY ? 0.0 : NAN;
    float scale = op == OP_LOG_SOFTMAX ? safe_log(sum) : 1.0 / sum;
    for (uint c = begin; c < end; c += stride) {
        STEP v = LOAD_STEP(x, from + c * x_col_stride) - largest;
        STEP result = op == OP_LOG_SOFTMAX ? v - scale : exp_below(v) * scale;
        STORE_STEP(y, to + c * y_col_stride, defined ? result : STEP(otherwise));
    }
}
