//! Sorts every row, of `capacity` elements at most, and keeps the first `k`: a bitonic sort in shared memory, a work
//! group a row.
//!
//! Any `local_x` gives the same. Addresses and order are as in `topk`. `padded` is the number of elements of a row, raised to a power of two.
//! axis dtype = f32 f16 i32
//! axis capacity = 256 512 2048
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = ascending descending
//! local local_x
//! shared 16384
//! needs dtype=f16 : storage_16bit
#extension GL_EXT_control_flow_attributes : require
#include "lib/access.glsl"
#include "lib/strided.glsl"
#include "lib/order.glsl"

READS(0, x, T)
WRITES(1, values, T)
WRITES(2, indices, int)
PUSH(BASE(x) BASE(values) BASE(indices) uint rows; uint cols; uint padded; uint k; uint x_col_stride; uint y_col_stride; uint row_sizes[4]; uint x_row_strides[4]; uint y_row_strides[4];)

shared Ranked ranked[CAPACITY];

void main() {
    uint row = flat_group_id();
    bool live = row < rows;
    uint from = live ? strided_offset(row, row_sizes, x_row_strides) : 0u;
    uint to = live ? strided_offset(row, row_sizes, y_row_strides) : 0u;

    [[dont_unroll]] for (uint c = gl_LocalInvocationID.x; c < padded; c += local_x) {
        Ranked element = RANKED_LAST;
        if (live && c < cols) {
            uint key = KEY(from + c * x_col_stride);
            element = Ranked(op == OP_DESCENDING ? ~key : key, c);
        }
        ranked[c] = element;
    }
    for (uint span = 2u; span <= padded; span <<= 1) {
        for (uint step = span >> 1; step > 0u; step >>= 1) {
            barrier();
            [[dont_unroll]] for (uint pair = gl_LocalInvocationID.x; pair < padded / 2u; pair += local_x) {
                uint low = (pair / step) * step * 2u + pair % step;
                uint high = low + step;
                bool upwards = (low & span) == 0u;
                Ranked a = ranked[low];
                Ranked b = ranked[high];
                if (comes_before(b, a) == upwards) {
                    ranked[low] = b;
                    ranked[high] = a;
                }
            }
        }
    }
    barrier();
    if (!live) return;
    [[dont_unroll]] for (uint j = gl_LocalInvocationID.x; j < k; j += local_x) {
        uint c = ranked[j].index;
        STORE(values, to + j * y_col_stride, LOAD(x, from + c * x_col_stride));
        STOREI(indices, to + j * y_col_stride, int(c));
    }
}
