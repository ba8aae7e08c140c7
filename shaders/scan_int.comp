//! Running sums or products of integers along every row.
//!
//! Addresses and lanes are as in `scan_float`. With `checked` a result outside 32 bits is reported, else it wraps.
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = sum prod
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
PUSH(BASE(x) BASE(y) BASE(status) ROW_PARAMS uint node; uint x_col_stride; uint y_col_stride; uint row_sizes[4]; uint x_row_strides[4]; uint y_row_strides[4];)

Wide combine(Wide a, Wide b) {
    if (op == OP_PROD) return wide_product(a, b);
    return wide_sum(a, b);
}

shared Wide parts[local_x];

void main() {
    uint part_len = (cols + lanes - 1u) / lanes;
    uint begin = LANE() * part_len;
    uint end = min(begin + part_len, ROW_END());
    uint from = ROW_END() > 0u ? strided_offset(ROW(), row_sizes, x_row_strides) : 0u;
    uint to = ROW_END() > 0u ? strided_offset(ROW(), row_sizes, y_row_strides) : 0u;

    Wide identity = wide_of(op == OP_PROD ? 1 : 0);
    Wide part = identity;
    for (uint c = begin; c < end; c++) part = combine(part, wide_of(LOADI(x, from + c * x_col_stride)));
    parts[gl_LocalInvocationID.x] = part;
    barrier();

    Wide total = identity;
    uint first_lane = gl_LocalInvocationID.x - LANE();
    for (uint lane = 0u; lane < LANE(); lane++) total = combine(total, parts[first_lane + lane]);
    for (uint c = begin; c < end; c++) {
        total = combine(total, wide_of(LOADI(x, from + c * x_col_stride)));
        if (checked != 0u && !wide_fits(total)) { REPORT(node, STATUS_OVERFLOW, total.low) }
        STOREI(y, to + c * y_col_stride, int(total.low));
    }
}
