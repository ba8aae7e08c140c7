//! Keeps one triangle of the matrices in x, both contiguous, and makes the other zero.
//!
//! Element (row, column) is kept where column - row >= diagonal if `upper` is 1, <= diagonal if it is 0.
//! axis dtype = i32 f16
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) uint n_elems; uint rows; uint columns; int diagonal; uint upper;)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint line = i / columns;
    int right = int(i - line * columns) - int(line % rows);
    bool keeps = upper != 0u ? right >= diagonal : right <= diagonal;
    if (keeps) {
        STORE(y, i, LOAD(x, i));
    } else {
        STORE(y, i, T(0.0));
    }
}
