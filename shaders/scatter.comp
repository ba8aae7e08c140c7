//! Puts elements of `x` at positions that `index` holds: y[walk(i) + index(i) * y_step] = x(i).
//!
//! The space of i has rank 4; `y_strides` give walk(i), `x_strides` and `index_strides` the places of the other two. A
//! position outside 0..bound (after `bound` is added to a negative one where `wraps` is 1) is reported and its
//! element skipped. Where several elements go to one place, any of them ends up there.
//! axis dtype = i32 f16
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
READS(1, index, int)
WRITES(2, y, T)
STATUS(3)
PUSH(BASE(x) BASE(index) BASE(y) BASE(status)
     uint n_elems; uint bound; uint y_step; uint wraps; uint node;
     uint sizes[4]; uint x_strides[4]; uint index_strides[4]; uint y_strides[4];)

void main() {
    uint rest = flat_invocation_id();
    if (rest >= n_elems) return;
    uint from = 0u;
    uint at = 0u;
    uint to = 0u;
    for (int d = 3; d >= 0; d--) {
        uint outer = rest / sizes[d];
        uint coordinate = rest - outer * sizes[d];
        from += coordinate * x_strides[d];
        at += coordinate * index_strides[d];
        to += coordinate * y_strides[d];
        rest = outer;
    }
    int k = LOADI(index, at);
    uint position = uint(k) + (k < 0 && wraps != 0u ? bound : 0u);
    if (position >= bound) {
        REPORT(node, STATUS_INDEX, k)
        return;
    }
    STORE(y, to + position * y_step, LOAD(x, from));
}
