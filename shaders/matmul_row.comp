//! Product of one row and a matrix: y = f(alpha a b + beta bias) for m = 1.
//!
//! 16 invocations share a panel of 4 columns: each sums every 16th group of 4 consecutive k, and the 16 sums are
//! added in order. That split does not depend on `local_x`, a multiple of 16, so the result does not either.
//! Work groups: x and y count groups of `local_x` / 16 panels, z batches. Parameters: see `lib/product.glsl`.
//! axis dtype = f32 f16
//! axis out = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 a_vec4 = 0
//! spec 3 b_loads = 0
//! spec 4 has_bias = 0
//! spec 5 adds_y = 0
//! spec 6 activation = 0
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x
//! shared 1024
//! needs dtype=f16 : storage_16bit
//! skip dtype=f32 out=f16
#ifdef OUT_F16
#define Y float16_t
#else
#define Y float
#endif
#include "lib/product.glsl"

const uint SPLIT = 16u;
shared float partial_sums[4u * gl_WorkGroupSize.x];

void main() {
    uint part = gl_LocalInvocationID.x % SPLIT;
    uint panel = flat_group_id() * (gl_WorkGroupSize.x / SPLIT) + gl_LocalInvocationID.x / SPLIT;
    vec4 sum = vec4(0.0);
    if (panel * 4u < n) {
        uvec4 columns = panel_columns(panel);
        uint a_start = a_batch();
        uint b_start = b_batch();
        uint whole = k & ~3u;
        for (uint i = 4u * part; i < whole; i += 4u * SPLIT) {
            vec4 v = load_a4(a_start + i * a_strides[3]);
            mat4 w = load_b4(b_start + i * b_strides[2], columns);
            sum += v.x * w[0];
            sum += v.y * w[1];
            sum += v.z * w[2];
            sum += v.w * w[3];
        }
        if (whole + part < k) {
            uint i = whole + part;
            sum += LOADF(a, a_start + i * a_strides[3]) * load_b(b_start + i * b_strides[2], columns);
        }
    }
    uint slot = 4u * gl_LocalInvocationID.x;
    partial_sums[slot] = sum.x;
    partial_sums[slot + 1u] = sum.y;
    partial_sums[slot + 2u] = sum.z;
    partial_sums[slot + 3u] = sum.w;
    barrier();
    // The first 4 of the 16 finish a column each.
    if (part < 4u) {
        uint first = 4u * (gl_LocalInvocationID.x - part) + part;
        float total = 0.0;
        for (uint i = 0u; i < SPLIT; i++) total += partial_sums[first + 4u * i];
        finish(0u, panel * 4u + part, total);
    }
}
