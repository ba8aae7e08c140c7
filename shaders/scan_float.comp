//! Running sums or products along every row.
//!
//! Element c of row r is at `strided_offset(r, row_sizes, x_row_strides) + c * x_col_stride`, and so in y. The lanes
//! of a row take neighbouring parts of it: each first combines its own, then starts from what the parts before gave.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = sum prod
//! local local_x
//! shared 256
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/rows.glsl"
#include "lib/strided.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) ROW_PARAMS uint x_col_stride; uint y_col_stride; uint row_sizes[4]; uint x_row_strides[4]; uint y_row_strides[4];)

const float identity = op == OP_PROD ? 1.0 : 0.0;

float combine(float a, float b) { return op == OP_PROD ? a * b : a + b; }

shared float parts[local_x];

void main() {
    uint part_len = (cols + lanes - 1u) / lanes;
    uint begin = LANE() * part_len;
    uint end = min(begin + part_len, ROW_END());
    uint from = ROW_END() > 0u ? strided_offset(ROW(), row_sizes, x_row_strides) : 0u;
    uint to = ROW_END() > 0u ? strided_offset(ROW(), row_sizes, y_row_strides) : 0u;

    float part = identity;
    for (uint c = begin; c < end; c++) part = combine(part, LOADF(x, from + c * x_col_stride));
    parts[gl_LocalInvocationID.x] = part;
    barrier();

    float total = identity;
    uint first_lane = gl_LocalInvocationID.x - LANE();
    for (uint lane = 0u; lane < LANE(); lane++) total = combine(total, parts[first_lane + lane]);
    for (uint c = begin; c < end; c++) {
        total = combine(total, LOADF(x, from + c * x_col_stride));
        STOREF(y, to + c * y_col_stride, total);
    }
}
