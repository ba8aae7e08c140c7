//! Turns the indices of one dim into offsets, and adds `previous`, those of the dims before, where `adds` is 1.
//!
//! y and `previous` are contiguous, `index` has rank 4. An index outside 0..bound (after `bound` is added to a negative one where
//! `wraps` is 1) is reported; its offset is 0xffffffff, and stays that.
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! local local_x
#include "lib/access.glsl"

READS(0, index, int)
READS(1, previous, int)
WRITES(2, y, int)
STATUS(3)
PUSH(BASE(index) BASE(previous) BASE(y) BASE(status)
     uint n_elems; uint bound; uint step_elems; uint wraps; uint adds; uint node;
     uint sizes[4]; uint index_strides[4];)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint rest = i;
    uint at = 0u;
    for (int d = 3; d >= 0; d--) {
        uint outer = rest / sizes[d];
        at += (rest - outer * sizes[d]) * index_strides[d];
        rest = outer;
    }
    uint sum = adds != 0u ? uint(LOAD(previous, i)) : 0u;
    int k = LOADI(index, at);
    uint position = uint(k) + (k < 0 && wraps != 0u ? bound : 0u);
    if (position >= bound) {
        REPORT(node, STATUS_INDEX, k)
        sum = 0xffffffffu;
    } else if (sum != 0xffffffffu) {
        sum += position * step_elems;
    }
    STORE(y, i, int(sum));
}
