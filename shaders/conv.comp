//! Convolution over up to three spatial dims, plain or transposed, `tile_c` channels by 4 columns an invocation.
//!
//! x has sizes [batch, groups * in_channels, depth, height, width] and any strides; the result is contiguous. The
//! weight is contiguous: [groups * out_channels, in_channels, kernel] or, transposed, [groups * in_channels,
//! out_channels, kernel]. Fewer spatial dims have leading sizes of 1. Work groups: x counts groups of `local_x`
//! pieces of 4 columns, y tiles of channels (none spans two groups), z batches. All invocations of a group read the
//! same weights.
//! axis dtype = f32 f16
//! axis tile_c = 1 4
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 32
//! spec 2 kernel_d = 1
//! spec 3 kernel_h = 1
//! spec 4 kernel_w = 1
//! spec 5 transposed = 0
//! spec 6 has_bias = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
READS(1, weight, T)
READS(2, bias, T)
WRITES(3, y, T)
PUSH(BASE(x) BASE(weight) BASE(bias) BASE(y)
    uint groups; uint in_channels; uint out_channels;
    uint in_sizes[3]; uint out_sizes[3]; uint strides[3]; uint padding[3]; uint dilation[3]; uint x_strides[5];
)

// The input position that tap `tap` of output position `position` reads; -1 outside the input.
int source(uint dim, uint position, uint tap) {
    int at;
    if (transposed != 0u) {
        at = int(position + padding[dim]) - int(tap * dilation[dim]);
        if (at < 0 || uint(at) % strides[dim] != 0u) return -1;
        at /= int(strides[dim]);
    } else {
        at = int(position * strides[dim] + tap * dilation[dim]) - int(padding[dim]);
    }
    return at < int(in_sizes[dim]) ? max(at, -1) : -1;
}

void main() {
    uint pieces = (out_sizes[2] + 3u) / 4u;
    uint piece = gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (piece >= pieces * out_sizes[1] * out_sizes[0]) return;
    uint column = piece % pieces * 4u;
    uint row = piece / pieces % out_sizes[1];
    uint plane = piece / pieces / out_sizes[1];
    uint tiles = (out_channels + TILE_C - 1u) / TILE_C;
    uint group = gl_WorkGroupID.y / tiles;
    uint channel = gl_WorkGroupID.y % tiles * TILE_C;

    uint taps = kernel_d * kernel_h * kernel_w;
    // Steps of the weight from one channel to the next.
    uint in_step = transposed != 0u ? out_channels * taps : taps;
    uint out_step = transposed != 0u ? taps : in_channels * taps;
    uint group_start = group * in_channels * out_channels * taps;
    uint weight_starts[TILE_C];
    vec4 sums[TILE_C];
    for (uint c = 0u; c < TILE_C; c++) {
        weight_starts[c] = group_start + min(channel + c, out_channels - 1u) * out_step;
        sums[c] = vec4(0.0);
    }
    uint x_start = gl_WorkGroupID.z * x_strides[0] + group * in_channels * x_strides[1];
    for (uint tap = 0u; tap < taps; tap++) {
        int z_at = source(0u, plane, tap / (kernel_h * kernel_w));
        int y_at = source(1u, row, tap / kernel_w % kernel_h);
        ivec4 x_at;
        for (uint i = 0u; i < 4u; i++) x_at[i] = source(2u, column + i, tap % kernel_w);
        bvec4 inside = greaterThanEqual(x_at, ivec4(0));
        if (z_at < 0 || y_at < 0 || !any(inside)) continue;
        uvec4 at = x_start + uint(z_at) * x_strides[2] + uint(y_at) * x_strides[3] + uvec4(max(x_at, ivec4(0))) * x_strides[4];
        uint weight_at = tap;
        for (uint k = 0u; k < in_channels; k++) {
            vec4 v = mix(vec4(0.0), vec4(LOADF(x, at.x), LOADF(x, at.y), LOADF(x, at.z), LOADF(x, at.w)), inside);
            for (uint c = 0u; c < TILE_C; c++) sums[c] += LOADF(weight, weight_starts[c] + weight_at) * v;
            at += x_strides[1];
            weight_at += in_step;
        }
    }
    for (uint c = 0u; c < TILE_C && channel + c < out_channels; c++) {
        uint out_channel = group * out_channels + channel + c;
        vec4 value = sums[c];
        if (has_bias != 0u) value += LOADF(bias, out_channel);
        uint at = ((gl_WorkGroupID.z * groups * out_channels + out_channel) * out_sizes[0] + plane) * out_sizes[1] + row;
        at = at * out_sizes[2] + column;
        for (uint i = 0u; i < 4u && column + i < out_sizes[2]; i++) STOREF(y, at + i, value[i]);
    }
}
