//! Convolution with tiles of `tile_c` channels of one group at 4 positions an invocation, for Vulkan on the CPU.
//!
//! There every load of a lane is a load of its own, even where all lanes read the same; so the lanes of a subgroup share
//! the loads of the weight and broadcast them. Sums go as in `conv.comp`, whatever `lanes` and `local_x` are. With
//! `x_pairs`, a row of taps loads its columns two at a time, from one column before the first where `first_is_odd`. Work
//! groups: x counts groups of `local_x` pieces, y tiles of channels, z batches and phases. Every subgroup is full and has at
//! least `lanes` invocations; `lanes` is 4 or 8. Only device addresses are worth it; one variant with descriptors names the
//! operands. Operands and parameters: see `lib/conv.glsl`.
//! axis dtype = f32 f16
//! axis tile_c = 8 16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 8
//! spec 2 kernel_d = 1
//! spec 3 kernel_h = 1
//! spec 4 kernel_w = 1
//! spec 5 stride_w = 1
//! spec 6 dilation_w = 1
//! spec 7 transposed = 0
//! spec 8 window = 0
//! spec 9 x_pairs = 0
//! spec 10 first_is_odd = 0
//! spec 11 has_bias = 0
//! spec 12 adds_y = 0
//! spec 13 activation = 0
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! spec 14 lanes = 8
//! local local_x
//! needs : shader_int64 subgroup
//! needs dtype=f16 : storage_16bit
//! skip access=ssbo dtype=f16
//! skip access=ssbo tile_c=16
#include "lib/conv.glsl"
#include "lib/lanes.glsl"

const uint PANELS = TILE_C / 4;
// Turns of the loop over input channels that take one tap each.
const uint STEPS = 8 / PANELS;
// Vectors of the weight that a lane holds for a row of taps, at most: see `MOST_COLUMNS`.
const uint MOST_HELD = PANELS * 13 / 4 + 1;

void main() {
    Place place = place_of(gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x, gl_WorkGroupID.y);
    uint k = in_channels * taps();
    uint panels = (out_channels + 3u) / 4u;
    uint first_panel = place.channel / 4u;
    uint lane = gl_SubgroupInvocationID % lanes;
    vec4 sums[4 * PANELS];
    for (uint i = 0u; i < 4u * PANELS; i++) sums[i] = vec4(0.0);

    uint x_start = place.batch * x_strides[0] + place.group * in_channels * x_strides[1];
    uint weight_start = place.group * panels * k;
    for (uint tap_row = 0u; tap_row < kernel_d * kernel_h; tap_row++) {
        uint tap_d = tap_row / kernel_h;
        uint tap_h = tap_row % kernel_h;
        if (!meets(0u, place.phases.x, tap_d) || !meets(1u, place.phases.y, tap_h)) continue;
        int z_at = source(0u, place.phases.x, place.at.x, tap_d);
        int y_at = source(1u, place.phases.y, place.at.y, tap_h);
        bool row_inside = is_inside(0u, z_at) && is_inside(1u, y_at);
        uint row_start = x_start + clamped(0u, z_at) * x_strides[2] + clamped(1u, y_at) * x_strides[3];
        if (window != 0u) {
            // Lane i holds vectors i, i + lanes, ... of the row of taps, panel by panel.
            const uint items = PANELS * kernel_w;
            uint held_at[MOST_HELD];
            for (uint h = 0u; h * lanes < items; h++) {
                uint item = min(h * lanes + lane, items - 1u);
                uint panel = min(first_panel + item / kernel_w, panels - 1u);
                held_at[h] = 4u * (weight_start + panel * k + tap_row * kernel_w + item % kernel_w);
            }
            const uint columns = 3u * stride_w + (kernel_w - 1u) * dilation_w + 1u + first_is_odd;
            const uint step = x_pairs != 0u ? 2u : 1u;
            uint at[MOST_COLUMNS + 1u];
            bool inside[MOST_COLUMNS + 1u];
            int first = source(2u, 0u, place.at.z, 0u) - int(first_is_odd);
            for (uint i = 0u; i < columns; i += step) {
                int x_at = first + int(i);
                inside[i] = row_inside && is_inside(2u, x_at);
                at[i] = row_start + (inside[i] ? uint(x_at) : 0u) * x_strides[4];
            }
            for (uint left = in_channels; left > 0u; left--) {
                float v[MOST_COLUMNS + 2u];
                for (uint i = 0u; i < columns; i += step) {
                    if (x_pairs != 0u) {
                        vec2 pair = LOAD2F(x, at[i]);
                        v[i] = inside[i] ? pair.x : 0.0;
                        v[i + 1u] = inside[i] ? pair.y : 0.0;
                    } else {
                        float value = LOADF(x, at[i]);
                        v[i] = inside[i] ? value : 0.0;
                    }
                    at[i] += x_strides[1];
                }
                vec4 held[MOST_HELD];
                for (uint h = 0u; h * lanes < items; h++) {
                    held[h] = LOAD4F(weight, held_at[h]);
                    held_at[h] += 4u * taps();
                }
                for (uint tap = 0u; tap < kernel_w; tap++) {
                    for (uint p = 0u; p < PANELS; p++) {
                        uint item = p * kernel_w + tap;
                        vec4 w = of_lane(held[item / lanes], item % lanes);
                        for (uint i = 0u; i < 4u; i++) {
                            sums[4u * p + i] += v[i * stride_w + tap * dilation_w + first_is_odd] * w;
                        }
                    }
                }
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
                // Lane i holds the vector of panel i % PANELS for input channel i / PANELS of a turn.
                uint panel = min(first_panel + lane % PANELS, panels - 1u);
                uint tap_at = weight_start + tap_row * kernel_w + tap;
                uint weight_at = tap_at + panel * k;
                for (uint done = 0u; done < in_channels; done += STEPS) {
                    vec4 held[2];
                    for (uint h = 0u; h * lanes < STEPS * PANELS; h++) {
                        uint in_channel = min(done + (h * lanes + lane) / PANELS, in_channels - 1u);
                        held[h] = LOAD4F(weight, 4u * (weight_at + in_channel * taps()));
                    }
                    for (uint turn = 0u; turn < STEPS; turn++) {
                        // A turn past the last channel adds nothing of it again.
                        bvec4 counts = bvec4(done + turn < in_channels);
                        vec4 v = vec4(LOADF(x, at.x), LOADF(x, at.y), LOADF(x, at.z), LOADF(x, at.w));
                        v = mix(vec4(0.0), v, inside);
                        v = mix(vec4(0.0), v, counts);
                        if (done + turn + 1u < in_channels) at += x_strides[1];
                        for (uint p = 0u; p < PANELS; p++) {
                            uint item = turn * PANELS + p;
                            vec4 w = mix(vec4(0.0), of_lane(held[item / lanes], item % lanes), counts);
                            for (uint i = 0u; i < 4u; i++) sums[4u * p + i] += v[i] * w;
                        }
                    }
                }
            }
        }
    }
    if (!place.is_there) return;
    for (uint c = 0u; c < TILE_C; c++) {
        if (place.channel + c >= out_channels) break;
        uint p = 4u * (c / 4u);
        uint lane_c = c % 4u;
        finish(place, place.channel + c, vec4(sums[p][lane_c], sums[p + 1u][lane_c], sums[p + 2u][lane_c], sums[p + 3u][lane_c]));
    }
}
