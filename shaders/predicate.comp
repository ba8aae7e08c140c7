//! Element-wise tests of one tensor of rank up to 4, into a contiguous bool tensor (one int an element).
//!
//! `sizes` and `x_strides` are in elements, dim 0 outermost; unused leading dims have size 1 and stride 0.
//! NaN is not zero.
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = is_nonzero is_zero is_nan is_inf is_finite
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/strided.glsl"
#include "lib/truth.glsl"

READS(0, x, T)
WRITES(1, y, int)
PUSH(BASE(x) BASE(y) uint n_elems; uint sizes[4]; uint x_strides[4];)

#define HOLDS(name, condition) case name: return condition;

bool holds(uint i) {
#ifdef DTYPE_I32
    int v = LOADI(x, i);
    switch (op) {
        case OP_IS_NONZERO: return v != 0;
        case OP_IS_ZERO: return v == 0;
        case OP_IS_FINITE: return true;
        default: return false;
    }
#else
    float v = LOADF(x, i);
    switch (op) {
        PREDICATES(HOLDS)
        default: return false;
    }
#endif
}

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    STOREI(y, i, holds(strided_offset(i, sizes, x_strides)) ? 1 : 0);
}
