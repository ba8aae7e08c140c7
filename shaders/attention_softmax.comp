//! Softmax of the rows of attention scores with what is masked left out; a row of nothing gives zeros.
//!
//! x and y are contiguous. A column counts where the mask is not 0 (`has_mask`), and up to the row's own number
//! among `queries` (`is_causal`). Row r of the mask starts at `strided_offset(r, row_sizes, mask_row_strides)`.
//! The exponentials replace the scores in x.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 has_mask = 0
//! spec 3 is_causal = 0
//! local local_x
//! shared 512
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/rows.glsl"
#include "lib/strided.glsl"

UPDATES(0, x, float)
READS(1, mask, int)
WRITES(2, y, T)
PUSH(BASE(x) BASE(mask) BASE(y) ROW_PARAMS
    uint queries; uint mask_col_stride; uint row_sizes[4]; uint mask_row_strides[4];
)

ROW_COMBINE(row_max, float, nan_max)
ROW_COMBINE(row_sum, float, ROW_ADD)

void main() {
    uint end = ROW_END();
    uint start = ROW() * cols;
    uint mask_start = has_mask != 0u && end > 0u ? strided_offset(ROW(), row_sizes, mask_row_strides) : 0u;
    if (is_causal != 0u) end = min(end, ROW() % queries + 1u);

    float largest = -INFINITY;
    for (uint c = LANE(); c < end; c += lanes) {
        if (has_mask != 0u && LOADI(mask, mask_start + c * mask_col_stride) == 0) continue;
        largest = nan_max(largest, LOADF(x, start + c));
    }
    largest = row_max(largest);

    float sum = 0.0;
    for (uint c = LANE(); c < end; c += lanes) {
        bool counts = has_mask == 0u || LOADI(mask, mask_start + c * mask_col_stride) != 0;
        float v = counts ? safe_exp(LOADF(x, start + c) - largest) : 0.0;
        STORE(x, start + c, v);
        sum += v;
    }
    sum = row_sum(sum);

    bool defined = is_finite(largest);
    float otherwise = largest == -INFINITY ? 0.0 : NAN;
    float scale = 1.0 / sum;
    for (uint c = LANE(); c < ROW_END(); c += lanes) {
        float v = c < end ? LOADF(x, start + c) * scale : 0.0;
        STOREF(y, start + c, defined ? v : otherwise);
    }
}
