//! Chooses scale and zero point of every row from its smallest and largest element, both taken to span 0.
//!
//! `scheme`: affine, scale = (largest - smallest) / (high - low) and zero = low - round(smallest / scale), clamped;
//! symmetric, scale = largest magnitude / ((high - low) / 2); no_clipping, the larger of smallest / low and
//! largest / high; nearest, as affine with the zero point from the end that loses less, rounded last. No scale is
//! below `eps`. The zero point of the second and third is the parameter `zero_point`.
//! axis dtype = f32 f16
//! axis zero = i32 f32
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 scheme = 0
//! values scheme = affine symmetric no_clipping nearest
//! local local_x
//! shared 512
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/rows.glsl"
#include "lib/strided.glsl"

#ifdef ZERO_F32
#define Z float
#else
#define Z int
#endif

READS(0, x, T)
WRITES(1, scale, float)
WRITES(2, zero, Z)
PUSH(BASE(x) BASE(scale) BASE(zero) ROW_PARAMS
     uint inner; float low; float high; float eps; float zero_point;
     uint col_strides[2]; uint row_sizes[4]; uint row_strides[4];)

ROW_COMBINE(row_smallest, float, nan_min)
ROW_COMBINE(row_largest, float, nan_max)

void main() {
    uint end = ROW_END();
    uint from = end > 0u ? strided_offset(ROW(), row_sizes, row_strides) : 0u;
    float smallest = 0.0;
    float largest = 0.0;
    for (uint c = LANE(); c < end; c += lanes) {
        float v = LOADF(x, from + col_offset(c, cols, inner, col_strides));
        smallest = nan_min(smallest, v);
        largest = nan_max(largest, v);
    }
    smallest = row_smallest(smallest);
    largest = row_largest(largest);

    float s;
    float z = zero_point;
    if (scheme == SCHEME_SYMMETRIC) {
        s = nan_max(nan_max(-smallest, largest) / ((high - low) / 2.0), eps);
    } else if (scheme == SCHEME_NO_CLIPPING) {
        s = nan_max(nan_max(smallest / low, largest / high), eps);
    } else {
        s = nan_max((largest - smallest) / (high - low), eps);
        precise float down = smallest / s;
        precise float up = largest / s;
        if (scheme == SCHEME_AFFINE) {
            z = low - roundEven(down);
        } else {
            precise float from_smallest = low + down;
            precise float from_largest = high + up;
            z = from_smallest + from_largest > 0.0 ? low - down : high - up;
        }
        z = roundEven(z < low ? low : z > high ? high : z);
    }
    if (end > 0u && LANE() == 0u) {
        STOREF(scale, ROW(), s);
#ifdef ZERO_F32
        STOREF(zero, ROW(), z);
#else
        STOREI(zero, ROW(), int_of_float(z));
#endif
    }
}
