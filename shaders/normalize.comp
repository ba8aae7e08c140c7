//! Normalises every row of a contiguous [rows, cols] matrix, then scales and shifts it.
//!
//! layer_norm: (x - mean) / sqrt(var + eps), the variance in a second pass; rms_norm: x / sqrt(mean(x^2) + eps).
//! Element c of row r takes weight and bias number `(r % groups) * per_group + c / inner`: 1, 0 and 1 where
//! they run along a row, as in layer_norm; the groups of an image, its channels a group, and the pixels a channel
//! in group_norm. With a width of 4, `inner` is 1 or a multiple of 4. What `has_weight` and `has_bias` deny is bound and not read.
//! axis dtype = f32 f16
//! axis width = 1 4
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = layer_norm rms_norm
//! spec 3 has_weight = 0
//! spec 4 has_bias = 0
//! local local_x
//! shared 256
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/rows.glsl"

READS(0, x, T)
READS(1, weight, T)
READS(2, bias, T)
WRITES(3, y, T)
PUSH(BASE(x) BASE(weight) BASE(bias) BASE(y) ROW_PARAMS uint groups; uint per_group; uint inner; float eps;)

ROW_COMBINE(row_sum, float, ROW_ADD)

// Weight or bias of the elements from number `c` of a row on, whose group has its first one at `first`.
#define AFFINE_STEP(name, first, c) (inner == 1u ? LOAD_STEP(name, first + c) : STEP(LOADF(name, first + c / inner)))

void main() {
    uint end = ROW_END();
    uint start = end > 0u ? ROW() * cols : 0u;
    uint begin = LANE() * WIDTH;
    uint stride = lanes * WIDTH;

    float mean = 0.0;
    if (op == OP_LAYER_NORM) {
        float sum = 0.0;
        for (uint c = begin; c < end; c += stride) sum += step_sum(LOAD_STEP(x, start + c));
        mean = row_sum(sum) / float(cols);
    }
    float squares = 0.0;
    for (uint c = begin; c < end; c += stride) {
        STEP d = LOAD_STEP(x, start + c) - mean;
        squares += step_sum(d * d);
    }
    float scale = 1.0 / sqrt(row_sum(squares) / float(cols) + eps);

    uint first = end > 0u ? (ROW() % groups) * per_group : 0u;
    for (uint c = begin; c < end; c += stride) {
        STEP v = (LOAD_STEP(x, start + c) - mean) * scale;
        if (has_weight != 0u) v *= AFFINE_STEP(weight, first, c);
        if (has_bias != 0u) v += AFFINE_STEP(bias, first, c);
        STORE_STEP(y, start + c, v);
    }
}
