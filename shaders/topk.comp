//! The first `k` elements of every row in order, and their positions, by looking through the row once for each.
//!
//! Element c of row r is at `strided_offset(r, row_sizes, x_row_strides) + c * x_col_stride`; result j of it at
//! `strided_offset(r, row_sizes, y_row_strides) + j * y_col_stride` of values and indices. NaN is above all numbers; of
//! equal elements the first comes first.
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = ascending descending
//! local local_x
//! shared 512
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/rows.glsl"
#include "lib/strided.glsl"
#include "lib/order.glsl"

READS(0, x, T)
WRITES(1, values, T)
WRITES(2, indices, int)
PUSH(BASE(x) BASE(values) BASE(indices) ROW_PARAMS uint k; uint x_col_stride; uint y_col_stride; uint row_sizes[4]; uint x_row_strides[4]; uint y_row_strides[4];)

ROW_COMBINE(row_first, Ranked, ranked_first)

void main() {
    uint end = ROW_END();
    uint from = end > 0u ? strided_offset(ROW(), row_sizes, x_row_strides) : 0u;
    uint to = end > 0u ? strided_offset(ROW(), row_sizes, y_row_strides) : 0u;

    Ranked last = RANKED_LAST;
    for (uint j = 0u; j < k; j++) {
        Ranked best = RANKED_LAST;
        for (uint c = LANE(); c < end; c += lanes) {
            uint key = KEY(from + c * x_col_stride);
            Ranked candidate = Ranked(op == OP_DESCENDING ? ~key : key, c);
            if (j == 0u || comes_before(last, candidate)) best = ranked_first(best, candidate);
        }
        last = row_first(best);
        if (end > 0u && LANE() == 0u) {
            STORE(values, to + j * y_col_stride, LOAD(x, from + last.index * x_col_stride));
            STOREI(indices, to + j * y_col_stride, int(last.index));
        }
    }
}
