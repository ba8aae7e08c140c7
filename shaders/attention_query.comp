//! Attention with `tile` queries an invocation, for Vulkan on the CPU.
//!
//! There every load of a lane is a load of its own, even where all lanes read the same; so the lanes of a subgroup share
//! the loads of 8 keys and of their values, and broadcast them. Blocks of 8 keys are counted from the first, whatever
//! `lanes`, `tile` and `local_x` are. Every subgroup is full and has at least `lanes` invocations; `lanes` is 4 or 8,
//! `tile` 1 or 2. `span` invocations end at the same key; it is a multiple of what a subgroup has. Work groups: x counts
//! `local_x * tile` queries, z batches. Only device addresses are worth it; one variant with descriptors names the operands.
//! Parameters: see `lib/attention.glsl`.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 8
//! spec 2 width = 8
//! spec 3 mask_kind = 0
//! values mask_kind = none added chosen filled
//! spec 4 is_causal = 0
//! spec 5 dead_is_nan = 0
//! spec 6 lanes = 8
//! spec 7 tile = 1
//! spec 8 span = 8
//! local local_x
//! needs : shader_int64 subgroup
//! needs dtype=f16 : storage_16bit
//! needs access=ssbo : storage_buffers_5
//! skip access=ssbo dtype=f16
#extension GL_EXT_control_flow_attributes : require
#include "lib/attention.glsl"

const uint KEYS = 8u;

vec4 rows[2u * width];
vec4 sums[2u * width];

// The value of one lane, which only a constant can name.
vec4 of_lane(vec4 value, uint lane) {
    switch (lane) {
        case 0u: return subgroupBroadcast(value, 0u);
        case 1u: return subgroupBroadcast(value, 1u);
        case 2u: return subgroupBroadcast(value, 2u);
        case 3u: return subgroupBroadcast(value, 3u);
        case 4u: return subgroupBroadcast(value, 4u);
        case 5u: return subgroupBroadcast(value, 5u);
        case 6u: return subgroupBroadcast(value, 6u);
        default: return subgroupBroadcast(value, 7u);
    }
}

void main() {
    uint invocation = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint query = invocation * tile;
    uint mask_at[2];
    float largest[2];
    float total[2];
    [[unroll]] for (uint t = 0u; t < tile; t++) {
        // Queries past the last stay, as others need their loads.
        uint row = min(query + t, queries - 1u);
        uint q_at = q_batch() + row * q_strides[2];
        [[unroll]] for (uint i = 0u; i < width; i++) {
            rows[t * width + i] = scale * LOAD4F(q, q_at + 4u * i);
            sums[t * width + i] = vec4(0.0);
        }
        mask_at[t] = mask_batch() + row * mask_strides[2];
        largest[t] = -INFINITY;
        total[t] = 0.0;
    }
    // Blocks that no query of the span sees are left out.
    uint seen = (invocation / span + 1u) * span * tile;
    uint end = is_causal != 0u ? min(keys, seen) : keys;
    uint lane = gl_SubgroupInvocationID % lanes;
    for (uint first = 0u; first < end; first += KEYS) {
        float w[2u * KEYS];
        [[unroll]] for (uint j = 0u; j < tile * KEYS; j++) w[j] = 0.0;
        [[unroll]] for (uint part = 0u; part < KEYS; part += lanes) {
            uint k_at = k_batch() + min(first + part + lane, keys - 1u) * k_strides[2];
            [[unroll]] for (uint i = 0u; i < width; i++) {
                vec4 held = LOAD4F(k, k_at + 4u * i);
                [[unroll]] for (uint j = 0u; j < lanes; j++) {
                    vec4 row = of_lane(held, j);
                    [[unroll]] for (uint t = 0u; t < tile; t++) w[t * KEYS + part + j] += dot(rows[t * width + i], row);
                }
            }
        }
        [[unroll]] for (uint t = 0u; t < tile; t++) {
            float most = largest[t];
            [[unroll]] for (uint j = 0u; j < KEYS; j++) {
                uint key = first + j;
                float score = masked(w[t * KEYS + j], query + t, key, mask_at[t] + min(key, keys - 1u) * mask_strides[3]);
                score = key < keys ? score : -INFINITY;
                most = largest_of(most, score);
                w[t * KEYS + j] = score;
            }
            float base = exponent_base(most);
            float kept = exp_below(largest[t] - base);
            largest[t] = most;
            total[t] *= kept;
            [[unroll]] for (uint j = 0u; j < KEYS; j++) {
                w[t * KEYS + j] = exp_below(w[t * KEYS + j] - base);
                total[t] += w[t * KEYS + j];
            }
            [[unroll]] for (uint i = 0u; i < width; i++) sums[t * width + i] *= kept;
        }
        [[unroll]] for (uint part = 0u; part < KEYS; part += lanes) {
            uint key = first + part + lane;
            uint v_at = v_batch() + min(key, keys - 1u) * v_strides[2];
            [[unroll]] for (uint i = 0u; i < width; i++) {
                vec4 held = LOAD4F(v, v_at + 4u * i);
                held = key < keys ? held : vec4(0.0);
                [[unroll]] for (uint j = 0u; j < lanes; j++) {
                    vec4 value = of_lane(held, j);
                    [[unroll]] for (uint t = 0u; t < tile; t++) sums[t * width + i] += w[t * KEYS + part + j] * value;
                }
            }
        }
    }
    [[unroll]] for (uint t = 0u; t < tile; t++) {
        if (query + t >= queries) return;
        float factor = 1.0 / total[t];
        uint y_at = y_batch() + (query + t) * y_strides[2];
        vec4 otherwise = vec4(undefined_value(largest[t]));
        [[unroll]] for (uint i = 0u; i < width; i++) {
            STORE4F(y, y_at + 4u * i, is_defined(largest[t]) ? sums[t * width + i] * factor : otherwise);
        }
    }
}
