//! Puts elements of x, in order, at the places of y that a mask names: y[i] = x[counts[i] - 1].
//!
//! `counts` are the running sums of the mask, so a place is named where they grow. All operands are contiguous. A
//! place beyond the `bound` elements of x is reported and skipped.
//! axis dtype = i32 f16
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
READS(1, counts, int)
WRITES(2, y, T)
STATUS(3)
PUSH(BASE(x) BASE(counts) BASE(y) BASE(status) uint n_elems; uint bound; uint node;)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    int count = LOADI(counts, i);
    int before = i > 0u ? LOADI(counts, i - 1u) : 0;
    if (count == before) return;
    if (uint(before) >= bound) {
        REPORT(node, STATUS_INDEX, before)
        return;
    }
    STORE(y, i, LOAD(x, before));
}
