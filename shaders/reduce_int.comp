//! Reduces every row of a strided tensor of integers to one integer.
//!
//! Addresses are as in `reduce_float`. Sums are exact in 64 bits, products in sign and 32 bits of magnitude; with
//! `checked` a result outside 32 bits is reported, else it wraps. any and all take truth values.
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = sum prod amax amin any all
//! spec 3 checked = 0
//! local local_x
//! shared 768
#include "lib/access.glsl"
#include "lib/rows.glsl"
#include "lib/strided.glsl"
#include "lib/wide.glsl"

READS(0, x, int)
WRITES(1, y, int)
STATUS(2)
PUSH(BASE(x) BASE(y) BASE(status) ROW_PARAMS uint inner; uint node; uint row_sizes[4]; uint x_row_strides[4]; uint x_col_strides[2];)

Wide identity() {
    switch (op) {
        case OP_PROD: case OP_ALL: return wide_of(1);
        case OP_AMAX: return wide_of(int(0x80000000u));
        case OP_AMIN: return wide_of(0x7fffffff);
    }
    return wide_of(0);
}

Wide combine(Wide a, Wide b) {
    switch (op) {
        case OP_PROD: return wide_product(a, b);
        case OP_AMAX: case OP_ANY: return wide_of(max(int(a.low), int(b.low)));
        case OP_AMIN: case OP_ALL: return wide_of(min(int(a.low), int(b.low)));
    }
    return wide_sum(a, b);
}

ROW_COMBINE(row_combine, Wide, combine)

void main() {
    uint end = ROW_END();
    uint from = end > 0u ? strided_offset(ROW(), row_sizes, x_row_strides) : 0u;

    Wide total = identity();
    for (uint c = LANE(); c < end; c += lanes) {
        total = combine(total, wide_of(LOADI(x, from + col_offset(c, cols, inner, x_col_strides))));
    }
    total = row_combine(total);

    if (ROW() < rows && LANE() == 0u) {
        if (checked != 0u && !wide_fits(total)) { REPORT(node, STATUS_OVERFLOW, total.low) }
        STOREI(y, ROW(), int(total.low));
    }
}
