//! Puts the scale and zero point of each row where products in integers read them: y[2 row] gets the bits of the scale,
//! y[2 row + 1] the zero point plus `offset`.
//!
//! An infinite scale becomes NaN: sums of values that are infinite each and of both signs are that.
//!
//! Without `has_zeros` zero points are 0, and the operand's slot is not read. One row an invocation.
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 has_zeros = 0
//! local local_x
#include "lib/access.glsl"

READS(0, scale, float)
READS(1, zero, int)
WRITES(2, y, int)
PUSH(BASE(scale) BASE(zero) BASE(y)
    uint rows; uint scale_stride; uint zero_stride; int offset;
)

void main() {
    uint row = flat_invocation_id();
    if (row >= rows) return;
    int bits = floatBitsToInt(LOAD(scale, row * scale_stride));
    STORE(y, 2u * row, (bits & 0x7fffffff) == 0x7f800000 ? 0x7fc00000 : bits);
    STORE(y, 2u * row + 1u, (has_zeros != 0u ? LOAD(zero, row * zero_stride) : 0) + offset);
}
