//! Normalises every row of a contiguous [rows, cols] matrix, then scales and shifts it.
//!
//! layer_norm: (x - mean) / sqrt(var + eps), the variance in a second pass; rms_norm: x / sqrt(mean(x^2) + eps).
//! Element c of row r takes weight and bias number `(r % groups) * per_group + c / inner`: 1, 0 and 1 where
//! they run along a row, as in layer_norm; the groups of an image, its channels a group, and the pixels a channel
//! in group_norm. What `has_weight` and `has_bias` deny is bound and not read.
//! axis dtype = f32 f16
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

void main() {
    uint end = ROW_END();
    uint start = end > 0u ? ROW() * cols : 0u;

    float mean = 0.0;
    if (op == OP_LAYER_NORM) {
        float sum = 0.0;
        for (uint c = LANE(); c < end; c += lanes) sum += LOADF(x, start + c);
        mean = row_sum(sum) / float(cols);
    }
    float squares = 0.0;
    for (uint c = LANE(); c < end; c += lanes) {
        float d = LOADF(x, start + c) - mean;
        squares += d * d;
    }
    float scale = 1.0 / sqrt(row_sum(squares) / float(cols) + eps);

    uint first = end > 0u ? (ROW() % groups) * per_group : 0u;
    for (uint c = LANE(); c < end; c += lanes) {
        uint channel = first + (inner == 1u ? c : c / inner);
        float v = (LOADF(x, start + c) - mean) * scale;
        if (has_weight != 0u) v *= LOADF(weight, channel);
        if (has_bias != 0u) v += LOADF(bias, channel);
        STOREF(y, start + c, v);
    }
}
