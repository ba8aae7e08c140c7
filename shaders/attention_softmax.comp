//! Softmax of the rows of attention scores with what is masked left out; a row of nothing gives zeros, or NaN (`dead_is_nan`).
//!
//! x and y are contiguous. The mask replaces a score by `fill`: where it is 0 (`chosen`), or where it is not (`filled`). With
//! `is_causal` a column counts up to the row's own number among `queries`. Row r of the mask starts at
//! `strided_offset(r, row_sizes, mask_row_strides)`. The exponentials replace the scores in x.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 mask_kind = 0
//! values mask_kind = none chosen filled
//! spec 3 is_causal = 0
//! spec 4 dead_is_nan = 0
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
    uint queries; uint mask_col_stride; float fill; uint row_sizes[4]; uint mask_row_strides[4];
)

ROW_COMBINE(row_max, float, nan_max)
ROW_COMBINE(row_sum, float, ROW_ADD)

float score(uint at, uint mask_at) {
    float v = LOADF(x, at);
    if (mask_kind == MASK_KIND_CHOSEN) v = LOADI(mask, mask_at) != 0 ? v : fill;
    if (mask_kind == MASK_KIND_FILLED) v = LOADI(mask, mask_at) != 0 ? fill : v;
    return v;
}

void main() {
    uint end = ROW_END();
    uint start = ROW() * cols;
    bool has_mask = mask_kind != MASK_KIND_NONE && end > 0u;
    uint mask_start = has_mask ? strided_offset(ROW(), row_sizes, mask_row_strides) : 0u;
    if (is_causal != 0u) end = min(end, ROW() % queries + 1u);

    float largest = -INFINITY;
    for (uint c = LANE(); c < end; c += lanes) {
        largest = nan_max(largest, score(start + c, mask_start + c * mask_col_stride));
    }
    largest = row_max(largest);

    float sum = 0.0;
    for (uint c = LANE(); c < end; c += lanes) {
        float v = safe_exp(score(start + c, mask_start + c * mask_col_stride) - largest);
        STORE(x, start + c, v);
        sum += v;
    }
    sum = row_sum(sum);

    bool defined = is_finite(largest);
    float otherwise = largest == -INFINITY && dead_is_nan == 0u ? 0.0 : NAN;
    float scale = 1.0 / sum;
    for (uint c = LANE(); c < ROW_END(); c += lanes) {
        float v = c < end ? LOADF(x, start + c) * scale : 0.0;
        STOREF(y, start + c, defined ? v : otherwise);
    }
}
