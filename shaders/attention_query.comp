//! Attention of many queries, one to an invocation, for CPUs: all invocations of a group read the same keys and values.
//!
//! Keys come in blocks of 4, counted from the first; what is left over one by one. Work groups: x counts `local_x`
//! queries, z batches. Parameters: see `lib/attention.glsl`.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 32
//! spec 2 width = 16
//! spec 3 mask_kind = 0
//! values mask_kind = none added chosen filled
//! spec 4 is_causal = 0
//! spec 5 dead_is_nan = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
//! needs access=ssbo : storage_buffers_5
#extension GL_EXT_control_flow_attributes : require
#include "lib/attention.glsl"

vec4 query_row[width];
vec4 sums[width];

void main() {
    uint query = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (query >= queries) return;
    uint q_at = q_batch() + query * q_strides[2];
    [[unroll]] for (uint i = 0u; i < width; i++) {
        query_row[i] = scale * LOAD4F(q, q_at + 4u * i);
        sums[i] = vec4(0.0);
    }
    // Blocks that no query of the group sees are left out.
    uint end = keys;
    if (is_causal != 0u) end = min(end, ((gl_WorkGroupID.x + 1u) * gl_WorkGroupSize.x + 3u) & ~3u);
    uint k_at = k_batch();
    uint v_at = v_batch();
    uint mask_at = mask_batch() + query * mask_strides[2];
    uint k_step = k_strides[2];
    uint v_step = v_strides[2];
    float largest = -INFINITY;
    float total = 0.0;
    uint key = 0u;
    for (; key + 4u <= end; key += 4u) {
        vec4 scores = vec4(0.0);
        [[unroll]] for (uint i = 0u; i < width; i++) {
            scores.x += dot(query_row[i], LOAD4F(k, k_at + 4u * i));
            scores.y += dot(query_row[i], LOAD4F(k, k_at + k_step + 4u * i));
            scores.z += dot(query_row[i], LOAD4F(k, k_at + 2u * k_step + 4u * i));
            scores.w += dot(query_row[i], LOAD4F(k, k_at + 3u * k_step + 4u * i));
        }
        float most = largest;
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            scores[j] = masked(scores[j], query, key + j, mask_at);
            most = largest_of(most, scores[j]);
            mask_at += mask_strides[3];
        }
        float base = exponent_base(most);
        float kept = exp_below(largest - base);
        vec4 w = scores - base;
        w = vec4(exp_below(w.x), exp_below(w.y), exp_below(w.z), exp_below(w.w));
        largest = most;
        total = total * kept + ((w.x + w.y) + (w.z + w.w));
        [[unroll]] for (uint i = 0u; i < width; i++) {
            vec4 sum = sums[i] * kept;
            sum += w.x * LOAD4F(v, v_at + 4u * i);
            sum += w.y * LOAD4F(v, v_at + v_step + 4u * i);
            sum += w.z * LOAD4F(v, v_at + 2u * v_step + 4u * i);
            sums[i] = sum + w.w * LOAD4F(v, v_at + 3u * v_step + 4u * i);
        }
        k_at += 4u * k_step;
        v_at += 4u * v_step;
    }
    for (; key < end; key++) {
        float score = 0.0;
        [[unroll]] for (uint i = 0u; i < width; i++) score += dot(query_row[i], LOAD4F(k, k_at + 4u * i));
        score = masked(score, query, key, mask_at);
        mask_at += mask_strides[3];
        float most = largest_of(largest, score);
        float base = exponent_base(most);
        float kept = exp_below(largest - base);
        float w = exp_below(score - base);
        largest = most;
        total = total * kept + w;
        [[unroll]] for (uint i = 0u; i < width; i++) sums[i] = sums[i] * kept + w * LOAD4F(v, v_at + 4u * i);
        k_at += k_step;
        v_at += v_step;
    }
    float factor = 1.0 / total;
    uint y_at = y_batch() + query * y_strides[2];
    [[unroll]] for (uint i = 0u; i < width; i++) {
        STORE4F(y, y_at + 4u * i, is_defined(largest) ? sums[i] * factor : vec4(undefined_value(largest)));
    }
}
