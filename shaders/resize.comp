//! Resizes images: x is [n, channels, in_height, in_width] with any strides, y is contiguous.
//!
//! `scales` are input pixels per output pixel, down and across. With `mode=bilinear`, `align_corners` 1 puts the
//! corner pixels of input and output on one another, 0 the corners of those pixels.
//! axis dtype = f32 f16
//! axis mode = nearest bilinear
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y)
     uint n_elems; uint channels; uint out_height; uint out_width; uint in_height; uint in_width;
     float scale_down; float scale_across; uint align_corners; uint x_strides[4];)

// The place in the input of output position `at`, in pixels.
float source_of(uint at, float scale) {
    precise float place = float(at) * scale;
#ifdef MODE_BILINEAR
    if (align_corners == 0u) {
        precise float center = (float(at) + 0.5) * scale - 0.5;
        place = max(center, 0.0);
    }
#endif
    return place;
}

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint line = i / out_width;
    uint column = i - line * out_width;
    uint plane = line / out_height;
    uint row = line - plane * out_height;
    uint image = plane / channels;
    uint from = image * x_strides[0] + (plane - image * channels) * x_strides[1];
    float down = source_of(row, scale_down);
    float across = source_of(column, scale_across);
    uint top = min(uint(down), in_height - 1u);
    uint left = min(uint(across), in_width - 1u);
#ifdef MODE_NEAREST
    STORE(y, i, LOAD(x, from + top * x_strides[2] + left * x_strides[3]));
#else
    uint bottom = min(top + 1u, in_height - 1u);
    uint right = min(left + 1u, in_width - 1u);
    float below = min(down - float(top), 1.0);
    float beside = min(across - float(left), 1.0);
    uint upper = from + top * x_strides[2];
    uint lower = from + bottom * x_strides[2];
    float above = LOADF(x, upper + left * x_strides[3]) * (1.0 - beside) + LOADF(x, upper + right * x_strides[3]) * beside;
    float under = LOADF(x, lower + left * x_strides[3]) * (1.0 - beside) + LOADF(x, lower + right * x_strides[3]) * beside;
    STOREF(y, i, above * (1.0 - below) + under * below);
#endif
}
