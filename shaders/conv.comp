//! Convolution over up to three spatial dims, plain or transposed: y = f(convolution + bias).
//!
//! An invocation has a tile of `tile_c` channels of one group at 4 positions along the last dim. Operands, parameters and
//! the order of sums: see `lib/conv.glsl`.
//!
//! Work groups: z counts batches and phases. Where `across` is 0, x counts groups of `local_x` pieces and y tiles of
//! channels, so that all invocations of a group read the same weights; where it is 1, x counts groups of `local_x` tiles
//! and y pieces.
//! axis dtype = f32 f16
//! axis tile_c = 1 4 8 16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 32
//! spec 2 kernel_d = 1
//! spec 3 kernel_h = 1
//! spec 4 kernel_w = 1
//! spec 5 stride_w = 1
//! spec 6 dilation_w = 1
//! spec 7 transposed = 0
//! spec 8 window = 0
//! spec 9 across = 0
//! spec 10 has_bias = 0
//! spec 11 adds_y = 0
//! spec 12 activation = 0
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/conv.glsl"

#if TILE_C == 1
#define SUMS float
#define PANELS 1
#define LOAD_WEIGHT(k) LOADF(weight, k)
#else
#define SUMS vec4
#define PANELS (TILE_C / 4)
#define LOAD_WEIGHT(k) LOAD4F(weight, 4u * (k))
#endif

void main() {
    uint id = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    Place place = across != 0u ? place_of(gl_WorkGroupID.y, id) : place_of(id, gl_WorkGroupID.y);
    if (!place.is_there) return;
    uint k = in_channels * taps();
    uint panels = TILE_C == 1 ? 1u : (out_channels + 3u) / 4u;
    uint weight_at[PANELS];
    for (uint p = 0u; p < PANELS; p++) {
        weight_at[p] = (place.group * panels + min(place.channel / 4u + p, panels - 1u)) * k;
    }
    SUMS sums[4 * PANELS];
    for (uint i = 0u; i < 4u * PANELS; i++) sums[i] = SUMS(0.0);

    uint x_start = place.batch * x_strides[0] + place.group * in_channels * x_strides[1];
    for (uint tap_row = 0u; tap_row < kernel_d * kernel_h; tap_row++) {
        uint tap_d = tap_row / kernel_h;
        uint tap_h = tap_row % kernel_h;
        if (!meets(0u, place.phases.x, tap_d) || !meets(1u, place.phases.y, tap_h)) continue;
        int z_at = source(0u, place.phases.x, place.at.x, tap_d);
        int y_at = source(1u, place.phases.y, place.at.y, tap_h);
        bool row_inside = is_inside(0u, z_at) && is_inside(1u, y_at);
        uint row_start = x_start + clamped(0u, z_at) * x_strides[2] + clamped(1u, y_at) * x_strides[3];
        if (window != 0u) {
            uint at[MOST_COLUMNS];
            bool inside[MOST_COLUMNS];
            const uint columns = 3u * stride_w + (kernel_w - 1u) * dilation_w + 1u;
            for (uint i = 0u; i < columns; i++) {
                int x_at = source(2u, 0u, place.at.z, 0u) + int(i);
                inside[i] = row_inside && is_inside(2u, x_at);
                at[i] = row_start + clamped(2u, x_at) * x_strides[4];
            }
            uint k_at = tap_row * kernel_w;
            uint channel_start = 0u;
            for (uint left = in_channels; left > 0u; left--) {
                float v[MOST_COLUMNS];
                for (uint i = 0u; i < columns; i++) v[i] = inside[i] ? LOADF(x, channel_start + at[i]) : 0.0;
                for (uint tap = 0u; tap < kernel_w; tap++) {
                    for (uint p = 0u; p < PANELS; p++) {
                        SUMS w = LOAD_WEIGHT(weight_at[p] + k_at + tap);
                        for (uint i = 0u; i < 4u; i++) sums[4u * p + i] += v[i * stride_w + tap * dilation_w] * w;
                    }
                }
                k_at += taps();
                channel_start += x_strides[1];
            }
        } else {
            for (uint tap = 0u; tap < kernel_w; tap++) {
                if (!meets(2u, place.phases.z, tap)) continue;
                uvec4 at;
                bvec4 inside;
                for (uint i = 0u; i < 4u; i++) {
                    int x_at = source(2u, place.phases.z, place.at.z + i, tap);
                    inside[i] = row_inside && is_inside(2u, x_at);
                    at[i] = row_start + clamped(2u, x_at) * x_strides[4];
                }
                uint k_at = tap_row * kernel_w + tap;
                for (uint left = in_channels; left > 0u; left--) {
                    vec4 v = mix(vec4(0.0), vec4(LOADF(x, at.x), LOADF(x, at.y), LOADF(x, at.z), LOADF(x, at.w)), inside);
                    for (uint p = 0u; p < PANELS; p++) {
                        SUMS w = LOAD_WEIGHT(weight_at[p] + k_at);
                        for (uint i = 0u; i < 4u; i++) sums[4u * p + i] += v[i] * w;
                    }
                    at += x_strides[1];
                    k_at += taps();
                }
            }
        }
    }
#if TILE_C == 1
    finish(place, 0u, vec4(sums[0], sums[1], sums[2], sums[3]));
#else
    for (uint c = 0u; c < TILE_C; c++) {
        if (place.channel + c >= out_channels) break;
        uint p = 4u * (c / 4u);
        uint lane = c % 4u;
        finish(place, place.channel + c, vec4(sums[p][lane], sums[p + 1u][lane], sums[p + 2u][lane], sums[p + 3u][lane]));
    }
#endif
}
