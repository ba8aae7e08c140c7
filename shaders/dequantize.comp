//! Dequantises: y = (x - zero) * scale, element by element.
//!
//! `scale` and `zero` are strided tensors over the sizes of x where the spec constants say so, else parameters, and
//! their operand slots are not read. A zero point that is an integer is subtracted from x as one.
//! axis dtype = f32 f16
//! axis zero = i32 f32
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 scale_is_tensor = 0
//! spec 3 zero_is_tensor = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/strided.glsl"

#ifdef ZERO_F32
#define Z float
#else
#define Z int
#endif

READS(0, x, int)
READS(1, scale, float)
READS(2, zero, Z)
WRITES(3, y, T)
PUSH(BASE(x) BASE(scale) BASE(zero) BASE(y)
     uint n_elems; float scale_number; int zero_point;
     uint sizes[4]; uint x_strides[4]; uint scale_strides[4]; uint zero_strides[4];)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    int q = LOADI(x, strided_offset(i, sizes, x_strides));
    float v = float(q - zero_point);
    if (zero_is_tensor != 0u) {
        uint at = strided_offset(i, sizes, zero_strides);
#ifdef ZERO_F32
        v = float(q) - LOADF(zero, at);
#else
        v = float(q - LOADI(zero, at));
#endif
    }
    float factor = scale_is_tensor != 0u ? LOADF(scale, strided_offset(i, sizes, scale_strides)) : scale_number;
    STOREF(y, i, v * factor);
}
