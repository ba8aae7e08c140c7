// What the kernels of a convolution share: operands, parameters, which input a tap reads, and how a sum is stored.
//
// x has sizes [batch, groups * in_channels, depth, height, width] and any strides; the result is contiguous. Fewer spatial
// dims have leading sizes of 1. The weight has, for each group, panels of 4 output channels: vectors of 4 channels at one
// k, where k counts taps, then input channels. With `tile_c` = 1 a group has one channel, and the weight no panels.
//
// The transpose is taken phase by phase: positions that are congruent modulo the stride meet the same taps, and
// neighbours among them read neighbours of the input. Then a piece is 4 positions of one phase.
//
// Each sum goes along rows of taps, then input channels, then taps of the row (`window` = 1, which loads each column of
// the input once for all taps of a row), or along taps, then input channels.
#ifndef CONV_GLSL
#define CONV_GLSL

#include "lib/access.glsl"
#ifdef NEEDS_SHADER_INT64
#include "lib/words.glsl"
#endif

READS(0, x, T)
READS(1, weight, T)
READS(2, bias, T)
UPDATES(3, y, T)
PUSH(BASE(x) BASE(weight) BASE(bias) BASE(y)
    uint groups; uint in_channels; uint out_channels;
    uint in_sizes[3]; uint out_sizes[3]; uint strides[2]; uint padding[3]; uint dilation[2]; uint x_strides[5];
    float act_a; float act_b;
)

#include "lib/epilogue.glsl"

// Columns of the input that a row of taps reaches from a piece, at most.
const uint MOST_COLUMNS = 16u;

uint taps() { return kernel_d * kernel_h * kernel_w; }

uint stride_of(uint dim) { return dim == 2u ? stride_w : strides[dim]; }

uint dilation_of(uint dim) { return dim == 2u ? dilation_w : dilation[dim]; }

// From one position of a phase to the next in the result.
uint out_step(uint dim) { return transposed != 0u ? stride_of(dim) : 1u; }

// Whether positions of `phase` meet the tap at all.
bool meets(uint dim, uint phase, uint tap) {
    return transposed == 0u || tap * dilation_of(dim) % stride_of(dim) == (phase + padding[dim]) % stride_of(dim);
}

// The input position that `tap` of the phase's position `at` reads, where the phase meets it.
int source(uint dim, uint phase, uint at, uint tap) {
    int reach = int(tap * dilation_of(dim));
    if (transposed != 0u) return (int(phase + padding[dim]) - reach) / int(stride_of(dim)) + int(at);
    return int(at * stride_of(dim)) + reach - int(padding[dim]);
}

bool is_inside(uint dim, int at) { return at >= 0 && uint(at) < in_sizes[dim]; }

uint clamped(uint dim, int at) { return uint(clamp(at, 0, int(in_sizes[dim]) - 1)); }

// The piece of positions and the tile of channels that an invocation has.
struct Place {
    uint batch; uvec3 phases; uvec3 at; uint group; uint channel;
    bool is_there;
};

// Those of the numbers `piece` and `tile`, and of the batch and phase that z counts; the last tile stands for those past it.
Place place_of(uint piece, uint tile) {
    Place place;
    uvec3 counts;
    uint rest = gl_WorkGroupID.z;
    for (uint dim = 0u; dim < 3u; dim++) {
        place.phases[dim] = rest % out_step(dim);
        rest /= out_step(dim);
        counts[dim] = (out_sizes[dim] + out_step(dim) - 1u) / out_step(dim);
    }
    place.batch = rest;
    uint pieces = (counts[2] + 3u) / 4u;
    place.at = uvec3(piece / pieces / counts[1], piece / pieces % counts[1], piece % pieces * 4u);
    uint tiles = (out_channels + TILE_C - 1u) / TILE_C;
    place.is_there = tile < tiles * groups && place.at.x * out_step(0u) + place.phases.x < out_sizes[0]
        && place.at.y * out_step(1u) + place.phases.y < out_sizes[1];
    tile = min(tile, tiles * groups - 1u);
    place.group = tile / tiles;
    place.channel = tile % tiles * TILE_C;
    return place;
}

// Adds the bias of a channel and what y held to the sums of its 4 positions, applies the activation and stores.
void finish(Place place, uint channel, vec4 sums) {
    uint out_channel = place.group * out_channels + channel;
    uvec2 outer = place.at.xy * uvec2(out_step(0u), out_step(1u)) + place.phases.xy;
    uint at = ((place.batch * groups * out_channels + out_channel) * out_sizes[0] + outer.x) * out_sizes[1] + outer.y;
    if (has_bias != 0u) sums += LOADF(bias, out_channel);
    for (uint i = 0u; i < 4u; i++) {
        uint column = (place.at.z + i) * out_step(2u) + place.phases.z;
        if (column >= out_sizes[2]) continue;
        float value = sums[i];
        if (adds_y != 0u) value += LOADF(y, at * out_sizes[2] + column);
        STOREF(y, at * out_sizes[2] + column, activate(value));
    }
}

#endif
