// What the kernels of attention share: y = softmax(scale q k^T + mask) v, over keys, never writing the scores. All sums
// are in f32.
//
// Every row of q, k, v and y holds 4 * `width` neighbouring elements and starts at a multiple of 4. `*_strides` are those of
// batch dim 0, batch dim 1 and the row; `group` neighbours of batch dim 1 share keys and values. A mask of floats is
// added to the scores; one of ints replaces them by `fill`, where it is 0 (`chosen`) or where it is not (`filled`). With
// `is_causal`, query i sees keys 0 to i. A query that sees nothing gives zeros, with `dead_is_nan` NaN.
#ifndef ATTENTION_GLSL
#define ATTENTION_GLSL

#include "lib/access.glsl"

READS(3, mask, T)
READS(3, choice, int)
#ifdef NEEDS_SHADER_INT64
#include "lib/words.glsl"
#endif
READS(0, q, T)
READS(1, k, T)
READS(2, v, T)
WRITES(4, y, T)
PUSH(BASE(q) BASE(k) BASE(v) BASE(mask) BASE(y)
    uint queries; uint keys; uint batch_1; uint group; float scale; float fill;
    uint q_strides[3];    // batch 0, batch 1, query
    uint k_strides[3];    // batch 0, batch 1 / group, key
    uint v_strides[3];    // the same
    uint mask_strides[4]; // batch 0, batch 1, query, key
    uint y_strides[3];    // batch 0, batch 1, query
)
#define choice_base mask_base

uint batch_0_index() { return gl_WorkGroupID.z / batch_1; }
uint batch_1_index() { return gl_WorkGroupID.z % batch_1; }
uint q_batch() { return batch_0_index() * q_strides[0] + batch_1_index() * q_strides[1]; }
uint k_batch() { return batch_0_index() * k_strides[0] + batch_1_index() / group * k_strides[1]; }
uint v_batch() { return batch_0_index() * v_strides[0] + batch_1_index() / group * v_strides[1]; }
uint mask_batch() { return batch_0_index() * mask_strides[0] + batch_1_index() * mask_strides[1]; }
uint y_batch() { return batch_0_index() * y_strides[0] + batch_1_index() * y_strides[1]; }

// The score of a query and a key, `at` being the mask's offset for them; -inf where the key does not count.
float masked(float score, uint query, uint key, uint at) {
    if (mask_kind == MASK_KIND_ADDED) score += LOADF(mask, at);
    if (mask_kind == MASK_KIND_CHOSEN) score = LOADI(choice, at) != 0 ? score : fill;
    if (mask_kind == MASK_KIND_FILLED) score = LOADI(choice, at) != 0 ? fill : score;
    if (is_causal != 0u) score = key <= query ? score : -INFINITY;
    return score;
}

// The larger of both; NaN once there was one.
float largest_of(float most, float v) { return v > most || is_nan(v) ? v : most; }

// What exponents are counted from: the largest score, which is subtracted, or 0 while there is none.
float exponent_base(float largest) { return largest == -INFINITY ? 0.0 : largest; }

// exp of what is not above 0. NaN comes up in rows without a finite maximum only, and is not used there.
float exp_below(float v) { return v < -103.972 ? 0.0 : exp(v); }

// The factor of a row's sum, and what the row is without a finite maximum, whatever a driver makes of inf - inf.
bool is_defined(float largest) { return is_finite(largest); }
float undefined_value(float largest) { return largest == -INFINITY && dead_is_nan == 0u ? 0.0 : NAN; }

#endif
