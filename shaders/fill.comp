//! Fills elements that lie a fixed step apart with one value.
//!
//! `value` holds the bits of the element; for `dtype=f16` those of the float that equals it.
//! axis dtype = i32 f16
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

WRITES(0, y, T)
PUSH(BASE(y) uint n_elems; uint y_step; uint value;)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
#ifdef DTYPE_F16
    STORE(y, i * y_step, float16_t(uintBitsToFloat(value)));
#else
    STORE(y, i * y_step, int(value));
#endif
}
