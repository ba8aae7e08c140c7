//! Largest element of each window of [batch, channels, height, width], one element an invocation.
//!
//! Also where it lies: the position in its plane of height times width elements. The first of equal ones counts, and
//! the last NaN, as in PyTorch. With `with_indices` 0 positions are not stored. x has any strides; the results are
//! contiguous.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 with_indices = 1
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
WRITES(1, y, T)
WRITES(2, indices, int)
PUSH(BASE(x) BASE(y) BASE(indices)
    uint n_elems; uint channels; uint in_sizes[2]; uint out_sizes[2]; uint kernel[2]; uint strides[2];
    uint padding[2]; uint dilation[2]; uint x_strides[4];
)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint column = i % out_sizes[1];
    uint row = i / out_sizes[1] % out_sizes[0];
    uint plane = i / out_sizes[1] / out_sizes[0];
    uint x_start = plane / channels * x_strides[0] + plane % channels * x_strides[1];
    float best = -INFINITY;
    int best_at = -1;
    for (uint tap_y = 0u; tap_y < kernel[0]; tap_y++) {
        int at_y = int(row * strides[0] + tap_y * dilation[0]) - int(padding[0]);
        if (at_y < 0 || at_y >= int(in_sizes[0])) continue;
        for (uint tap_x = 0u; tap_x < kernel[1]; tap_x++) {
            int at_x = int(column * strides[1] + tap_x * dilation[1]) - int(padding[1]);
            if (at_x < 0 || at_x >= int(in_sizes[1])) continue;
            float v = LOADF(x, x_start + uint(at_y) * x_strides[2] + uint(at_x) * x_strides[3]);
            if (best_at < 0 || v > best || is_nan(v)) {
                best = v;
                best_at = at_y * int(in_sizes[1]) + at_x;
            }
        }
    }
    STOREF(y, i, best);
    if (with_indices != 0u) STOREI(indices, i, best_at);
}
