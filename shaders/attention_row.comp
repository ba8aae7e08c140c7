//! Attention of one query at a time, as a decoder has: a work group shares its keys.
//!
//! A block of 4 keys an invocation at a time: each invocation computes the scores of every `local_x`-th key and turns them
//! into weights; then each adds up 4 elements of the values of every `local_x / (head / 4)`-th key, and these sums are added
//! in order. So results depend on `local_x`, which is a multiple of 32. Work groups: x counts queries, z batches.
//! Parameters: see `lib/attention.glsl`.
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

#define LANES gl_WorkGroupSize.x
const uint VECTORS = HEAD / 4u; // invocations for the elements of a row
#define PARTS (LANES / VECTORS) // of the keys
const uint SHARE = 4u;          // keys of an invocation in a block
#define KEYS (SHARE * LANES)

// Weights of a block, and of the one before, which others may still read; at the end sums of 4 elements.
shared float weights[2u * KEYS];
shared float partials[2u * LANES];

void main() {
    uint lane = gl_LocalInvocationID.x;
    uint query = gl_WorkGroupID.x;
    uint end = is_causal != 0u ? min(keys, query + 1u) : keys;
    uint q_at = q_batch() + query * q_strides[2];
    uint mask_at = mask_batch() + query * mask_strides[2];
    uint part = lane / VECTORS;
    uint element = lane % VECTORS * 4u;
    bool has_element = lane % VECTORS < width;
    float largest = -INFINITY;
    float total = 0.0;
    vec4 sum = vec4(0.0);
    uint half_at = 0u;

    for (uint first = 0u; first < end; first += KEYS) {
        uint k_at[SHARE];
        vec4 dots = vec4(0.0);
        for (uint j = 0u; j < SHARE; j++) k_at[j] = k_batch() + min(first + lane + j * LANES, keys - 1u) * k_strides[2];
        // Unrolled, loads would take the registers of other threads.
        [[dont_unroll]] for (uint i = 0u; i < 4u * width; i += 4u) {
            vec4 row = LOAD4F(q, q_at + i);
            for (uint j = 0u; j < SHARE; j++) dots[j] += dot(row, LOAD4F(k, k_at[j] + i));
        }
        float most = largest;
        for (uint j = 0u; j < SHARE; j++) {
            uint key = first + lane + j * LANES;
            float score = masked(scale * dots[j], query, key, mask_at + min(key, keys - 1u) * mask_strides[3]);
            dots[j] = key < keys ? score : -INFINITY;
            most = largest_of(most, dots[j]);
        }
        partials[half_at / SHARE + lane] = most;
        barrier();
        for (uint other = 0u; other < LANES; other++) most = largest_of(most, partials[half_at / SHARE + other]);
        float base = exponent_base(most);
        float kept = exp_below(largest - base);
        largest = most;
        total *= kept;
        for (uint j = 0u; j < SHARE; j++) {
            float weight = exp_below(dots[j] - base);
            weights[half_at + lane + j * LANES] = weight;
            total += weight;
        }
        barrier();
        sum *= kept;
        if (has_element) {
            uint v_at = v_batch() + (first + part) * v_strides[2] + element;
            uint seen = min(KEYS, keys - first);
            [[dont_unroll]] for (uint c = part; c < seen; c += PARTS) {
                sum += weights[half_at + c] * LOAD4F(v, v_at);
                v_at += PARTS * v_strides[2];
            }
        }
        half_at = KEYS - half_at;
    }
    barrier();
    partials[lane] = total;
    for (uint c = 0u; c < 4u; c++) weights[4u * lane + c] = sum[c];
    barrier();
    if (lane >= width) return;
    total = 0.0;
    for (uint other = 0u; other < LANES; other++) total += partials[other];
    vec4 result = vec4(0.0);
    for (uint other = 0u; other < PARTS; other++) {
        uint at = 4u * (other * VECTORS + lane);
        result += vec4(weights[at], weights[at + 1u], weights[at + 2u], weights[at + 3u]);
    }
    result *= 1.0 / total;
    STORE4F(y, y_batch() + query * y_strides[2] + 4u * lane, is_defined(largest) ? result : vec4(undefined_value(largest)));
}
