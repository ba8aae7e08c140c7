//! The largest or least element of every row of a strided tensor, and its position in the row.
//!
//! Addresses are as in `reduce_float`. A NaN wins over every number; of equal elements the first one wins. Rows
//! are not empty.
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = max min
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
PUSH(BASE(x) BASE(values) BASE(indices) ROW_PARAMS uint inner; uint row_sizes[4]; uint x_row_strides[4]; uint x_col_strides[2];)

ROW_COMBINE(row_first, Ranked, ranked_first)

#ifdef DTYPE_I32
const bool has_nan = false;
#else
const bool has_nan = true;
#endif

// The lowest key wins. NaN has the highest, so it is complemented for the minimum too.
uint winning_key(uint key) { return op == OP_MAX || (has_nan && key == 0xffffffffu) ? ~key : key; }

void main() {
    uint end = ROW_END();
    uint from = end > 0u ? strided_offset(ROW(), row_sizes, x_row_strides) : 0u;

    Ranked best = RANKED_LAST;
    for (uint c = LANE(); c < end; c += lanes) {
        uint key = KEY(from + col_offset(c, cols, inner, x_col_strides));
        best = ranked_first(best, Ranked(winning_key(key), c));
    }
    best = row_first(best);

    if (ROW() < rows && LANE() == 0u) {
        STORE(values, ROW(), LOAD(x, from + col_offset(best.index, cols, inner, x_col_strides)));
        STOREI(indices, ROW(), int(best.index));
    }
}
