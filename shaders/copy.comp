//! Copies a strided tensor of rank 8 into another of the same sizes.
//!
//! Sizes and strides are in elements, dim 0 outermost; unused leading dims have size 1 and stride 0.
//! `x_strides` count from `x_start` and wrap at 32 bits, so a dim can run backwards.
//! Invocation i takes element i of the row-major order; work is spread over x and y.
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) uint n_elems; uint x_start; uint sizes[8]; uint x_strides[8]; uint y_strides[8];)

void main() {
    uint rest = flat_invocation_id();
    if (rest >= n_elems) return;
    uint from = x_start;
    uint to = 0u;
    for (int d = 7; d >= 0; d--) {
        uint outer = rest / sizes[d];
        uint coordinate = rest - outer * sizes[d];
        from += coordinate * x_strides[d];
        to += coordinate * y_strides[d];
        rest = outer;
    }
    STORE(y, to, LOAD(x, from));
}
