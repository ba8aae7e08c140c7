//! Takes elements of `x` at positions that `index` holds: y[i] = x[walk(i) + index(i) * x_step].
//!
//! The space of i has rank 4; `x_strides` give walk(i), `index_strides` the place of the index. A position outside
//! 0..bound (after `bound` is added to a negative one where `wraps` is 1) is reported and its element skipped. `x`
//! may be a window of the table: positions `first` up to `first + window`; elements elsewhere are left alone.
//! With `width=4`, n_elems and sizes[3] count vectors of 4 consecutive elements of both `x` and `y`.
//! axis dtype = i32 f16
//! axis width = 1 4
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
     uint n_elems; uint bound; uint first; uint window; uint x_step; uint wraps; uint node;
     uint sizes[4]; uint x_strides[4]; uint index_strides[4];)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint rest = i;
    uint from = 0u;
    uint at = 0u;
    for (int d = 3; d >= 0; d--) {
        uint outer = rest / sizes[d];
        uint coordinate = rest - outer * sizes[d];
        from += coordinate * x_strides[d];
        at += coordinate * index_strides[d];
        rest = outer;
    }
    int k = LOADI(index, at);
    uint position = uint(k) + (k < 0 && wraps != 0u ? bound : 0u);
    if (position >= bound) {
        REPORT(node, STATUS_INDEX, k)
        return;
    }
    if (position - first >= window) return;
    from += (position - first) * x_step;
#if WIDTH == 4
    STORE4(y, i * 4u, LOAD4(x, from));
#else
    STORE(y, i, LOAD(x, from));
#endif
}
