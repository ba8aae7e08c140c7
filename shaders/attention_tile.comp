//! Attention of a tile of queries by a work group, which shares scores.
//!
//! A block of keys at a time: each invocation computes the scores of 4 queries and 2 keys, invocations that share a query
//! turn its scores into weights, then each adds up 4 elements of 4 queries. `head` bounds the elements of a row,
//! 4 * `width`, and gives the keys of a block and how many share them, so results do not depend on anything else.
//! Work groups: x counts tiles of 16 * `local_x` / `head` queries, z batches; `local_x` is a multiple of 32. Parameters: see
//! `lib/attention.glsl`.
//! axis dtype = f32 f16
//! axis head = 32 64 128
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 width = 8
//! spec 3 mask_kind = 0
//! values mask_kind = none added chosen filled
//! spec 4 is_causal = 0
//! spec 5 dead_is_nan = 0
//! local local_x
//! shared 2560
//! needs dtype=f16 : storage_16bit
//! needs access=ssbo : storage_buffers_5
#extension GL_EXT_control_flow_attributes : require
#include "lib/attention.glsl"

const uint VECTORS = HEAD / 4u;     // invocations for the elements of a row
const uint KEYS = 2u * VECTORS;     // of a block
const uint SHARERS = VECTORS / 4u;  // invocations that share a query's weights
const uint PITCH = KEYS + 1u;       // from one query's scores to the next's
#define QUERIES (gl_WorkGroupSize.x / SHARERS) // of a tile

shared float scores[gl_WorkGroupSize.x / SHARERS * PITCH];
shared float partials[gl_WorkGroupSize.x];
shared float kept[gl_WorkGroupSize.x / SHARERS];

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint first_query = gl_WorkGroupID.x * QUERIES;
    uint end = is_causal != 0u ? min(keys, first_query + QUERIES) : keys;
    // Scores: 4 queries and 2 keys.
    uint score_query = lane % (QUERIES / 4u) * 4u;
    uint score_key = lane / (QUERIES / 4u) * 2u;
    uint score_at = score_query * PITCH + score_key;
    // Weights: every SHARERS-th key of a query.
    uint weight_at = lane / SHARERS * PITCH + lane % SHARERS;
    uint weight_query = first_query + lane / SHARERS;
    uint mask_at = mask_batch() + min(weight_query, queries - 1u) * mask_strides[2];
    float largest = -INFINITY;
    float total = 0.0;
    // Sums: 4 elements of 4 queries.
    uint sum_query = lane / VECTORS * 4u;
    uint element = lane % VECTORS * 4u;
    bool has_element = lane % VECTORS < width;
    uint sum_end = is_causal != 0u ? min(keys, first_query + sum_query + 4u) : keys;
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));

    for (uint first_key = 0u; first_key < end; first_key += KEYS) {
        uint q_at[4];
        for (uint r = 0u; r < 4u; r++) q_at[r] = q_batch() + min(first_query + score_query + r, queries - 1u) * q_strides[2];
        uint k_at = k_batch() + min(first_key + score_key, keys - 1u) * k_strides[2];
        uint k_next = k_batch() + min(first_key + score_key + 1u, keys - 1u) * k_strides[2];
        vec2 dots[4] = vec2[4](vec2(0.0), vec2(0.0), vec2(0.0), vec2(0.0));
        // Unrolled, loads would take the registers of other threads.
        [[dont_unroll]] for (uint i = 0u; i < 4u * width; i += 4u) {
            vec4 k0 = LOAD4F(k, k_at + i);
            vec4 k1 = LOAD4F(k, k_next + i);
            for (uint r = 0u; r < 4u; r++) {
                vec4 v = LOAD4F(q, q_at[r] + i);
                dots[r] += vec2(dot(v, k0), dot(v, k1));
            }
        }
        for (uint r = 0u; r < 4u; r++) {
            scores[score_at + r * PITCH] = scale * dots[r].x;
            scores[score_at + r * PITCH + 1u] = scale * dots[r].y;
        }
        barrier();
        float most = largest;
        [[dont_unroll]] for (uint c = 0u; c < KEYS; c += SHARERS) {
            uint key = first_key + lane % SHARERS + c;
            float score = masked(scores[weight_at + c], weight_query, key, mask_at + min(key, keys - 1u) * mask_strides[3]);
            scores[weight_at + c] = key < keys ? score : -INFINITY;
            most = largest_of(most, scores[weight_at + c]);
        }
        partials[lane] = most;
        barrier();
        for (uint other = 0u; other < SHARERS; other++) most = largest_of(most, partials[lane / SHARERS * SHARERS + other]);
        float base = exponent_base(most);
        float factor = exp_below(largest - base);
        largest = most;
        total *= factor;
        for (uint c = 0u; c < KEYS; c += SHARERS) {
            float weight = exp_below(scores[weight_at + c] - base);
            scores[weight_at + c] = weight;
            total += weight;
        }
        kept[lane / SHARERS] = factor;
        barrier();
        for (uint r = 0u; r < 4u; r++) sums[r] *= kept[sum_query + r];
        if (has_element) {
            uint v_at = v_batch() + first_key * v_strides[2] + element;
            uint seen = min(KEYS, sum_end - min(sum_end, first_key));
            [[dont_unroll]] for (uint c = 0u; c < seen; c++) {
                vec4 value = LOAD4F(v, v_at);
                v_at += v_strides[2];
                for (uint r = 0u; r < 4u; r++) sums[r] += scores[(sum_query + r) * PITCH + c] * value;
            }
        }
        barrier();
    }
    // Each invocation has seen every SHARERS-th key of its query.
    partials[lane] = total;
    kept[lane / SHARERS] = largest;
    barrier();
    if (!has_element) return;
    for (uint r = 0u; r < 4u; r++) {
        uint query = first_query + sum_query + r;
        if (query >= queries) return;
        float sum = 0.0;
        for (uint other = 0u; other < SHARERS; other++) sum += partials[(sum_query + r) * SHARERS + other];
        float most = kept[sum_query + r];
        vec4 result = sums[r] * (1.0 / sum);
        STORE4F(y, y_batch() + query * y_strides[2] + element, is_defined(most) ? result : vec4(undefined_value(most)));
    }
}
