//! Takes rows of a matrix that lies in panels of 4 rows: y[i, k] = x[((n / 4) * cols + k) * 4 + n % 4] with n = index[i].
//!
//! For a table that a linear shares as its weight. A position outside 0..bound is reported and its row skipped. `x` may be a
//! window of the panels: positions `first` up to `first + window`, both multiples of 4; rows elsewhere are left alone.
//! axis dtype = f32 f16 i32
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
     uint n_elems; uint cols; uint bound; uint first; uint window; uint node;)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint row = i / cols;
    uint k = i - row * cols;
    int n = LOADI(index, row);
    uint position = uint(n);
    if (position >= bound) {
        REPORT(node, STATUS_INDEX, n)
        return;
    }
    position -= first;
    if (position >= window) return;
    STORE(y, i, LOAD(x, ((position >> 2) * cols + k) * 4u + (position & 3u)));
}
