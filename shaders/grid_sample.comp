//! Reads images through a grid: x is [n, channels, in_height, in_width] and grid [n, out_height, out_width, 2], of
//! any strides, y [n, channels, out_height, out_width] and contiguous.
//!
//! The grid's -1 and 1 are the borders of the image: with `align_corners` 1 the centres of the corner pixels, with
//! 0 their outer corners. `padding` says what a place outside reads: 0 zeros, 1 the border, 2 its mirror image.
//! axis dtype = f32 f16
//! axis mode = nearest bilinear
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
READS(1, grid, T)
WRITES(2, y, T)
PUSH(BASE(x) BASE(grid) BASE(y)
     uint n_elems; uint channels; uint out_height; uint out_width; uint in_height; uint in_width;
     uint padding; uint align_corners; uint x_strides[4]; uint grid_strides[4];)

// `place` between the first and the last pixel; what is no number becomes the first.
float inside(float place, float size) { return place > 0.0 ? min(place, size - 1.0) : 0.0; }

// `place` mirrored at both borders until it lies between them.
float mirrored(float place, float size) {
    float low = align_corners != 0u ? 0.0 : -0.5;
    float span = align_corners != 0u ? size - 1.0 : size;
    if (span <= 0.0) return 0.0;
    precise float away = abs(place - low);
    precise float flips = floor(away / span);
    precise float extra = away - flips * span;
    precise float kept = extra + low;
    precise float turned = span - extra + low;
    return mod(flips, 2.0) == 0.0 ? kept : turned;
}

// The place in pixels that the grid's `at` stands for.
float place_of(float at, float size) {
    precise float place = (at + 1.0) * ((size - 1.0) / 2.0);
    if (align_corners == 0u) {
        precise float center = (at + 1.0) * (size / 2.0) - 0.5;
        place = center;
    }
    if (padding == 2u) place = mirrored(place, size);
    return padding == 0u ? place : inside(place, size);
}

// The pixel at `row`, `column` of the image from `from` on; what lies outside counts as zero.
float pixel(uint from, float row, float column) {
    bool within = row >= 0.0 && row < float(in_height) && column >= 0.0 && column < float(in_width);
    return within ? LOADF(x, from + uint(row) * x_strides[2] + uint(column) * x_strides[3]) : 0.0;
}

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint line = i / out_width;
    uint plane = line / out_height;
    uint image = plane / channels;
    uint at = image * grid_strides[0] + (line - plane * out_height) * grid_strides[1]
        + (i - line * out_width) * grid_strides[2];
    uint from = image * x_strides[0] + (plane - image * channels) * x_strides[1];
    float across = place_of(LOADF(grid, at), float(in_width));
    float down = place_of(LOADF(grid, at + grid_strides[3]), float(in_height));
#ifdef MODE_NEAREST
    STOREF(y, i, pixel(from, roundEven(down), roundEven(across)));
#else
    float top = floor(down);
    float left = floor(across);
    float below = down - top;
    float beside = across - left;
    float above = pixel(from, top, left) * (1.0 - beside) + pixel(from, top, left + 1.0) * beside;
    float under = pixel(from, top + 1.0, left) * (1.0 - beside) + pixel(from, top + 1.0, left + 1.0) * beside;
    STOREF(y, i, above * (1.0 - below) + under * below);
#endif
}
