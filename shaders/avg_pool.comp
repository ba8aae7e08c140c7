//! Mean of each window of [batch, channels, height, width], one element an invocation.
//!
//! Windows are `kernel` large and `strides` apart; with `adaptive` 1 they share the input out evenly. A mean
//! divides by `divisor`, or where that is 0 by the elements of the window: those in the padding count with
//! `counts_padding`. x has any strides; the result is contiguous.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 adaptive = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y)
    uint n_elems; uint channels; uint counts_padding; float divisor; uint in_sizes[2]; uint out_sizes[2];
    uint kernel[2]; uint strides[2]; uint padding[2]; uint x_strides[4];
)

// First input position, end, and elements of window `o` along a dim; the padding may count among the elements.
ivec3 window(uint dim, uint o) {
    int size = int(in_sizes[dim]);
    if (adaptive != 0u) {
        uint count = out_sizes[dim];
        int first = int(o * in_sizes[dim] / count);
        int end = int(((o + 1u) * in_sizes[dim] + count - 1u) / count);
        return ivec3(first, end, end - first);
    }
    int first = int(o * strides[dim]) - int(padding[dim]);
    int end = min(first + int(kernel[dim]), size + int(padding[dim]));
    ivec2 inside = ivec2(max(first, 0), min(end, size));
    return ivec3(inside, counts_padding != 0u ? end - first : inside.y - inside.x);
}

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    ivec3 columns = window(1u, i % out_sizes[1]);
    ivec3 rows = window(0u, i / out_sizes[1] % out_sizes[0]);
    uint plane = i / out_sizes[1] / out_sizes[0];
    uint x_start = plane / channels * x_strides[0] + plane % channels * x_strides[1];
    float sum = 0.0;
    for (int at_y = rows.x; at_y < rows.y; at_y++) {
        for (int at_x = columns.x; at_x < columns.y; at_x++) {
            sum += LOADF(x, x_start + uint(at_y) * x_strides[2] + uint(at_x) * x_strides[3]);
        }
    }
    float count = float(rows.z * columns.z);
    STOREF(y, i, sum / (divisor != 0.0 ? divisor : max(count, 1.0)));
}
