//! Matrix product of integers: y = a b, one element an invocation.
//!
//! Sums wrap at 32 bits and are stored as `round_mode` says; with `is_i64` a sum that leaves 32 bits is reported.
//! Strides are in elements: batch dim 0, batch dim 1, row, column. Work groups: x and y count groups of `local_x`
//! elements of one batch, z batches. The result is contiguous.
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 is_i64 = 0
//! local local_x
#include "lib/access.glsl"

READS(0, a, int)
READS(1, b, int)
WRITES(2, y, int)
STATUS(3)
PUSH(BASE(a) BASE(b) BASE(y) BASE(status)
    uint node; uint m; uint n; uint k; uint batch_1; uint a_strides[4]; uint b_strides[4];
)

void main() {
    uint i = flat_invocation_id();
    if (i >= m * n) return;
    uint batch_0_index = gl_WorkGroupID.z / batch_1;
    uint batch_1_index = gl_WorkGroupID.z % batch_1;
    uint a_at = batch_0_index * a_strides[0] + batch_1_index * a_strides[1] + i / n * a_strides[2];
    uint b_at = batch_0_index * b_strides[0] + batch_1_index * b_strides[1] + i % n * b_strides[3];
    // A 64-bit sum in two words.
    uint low = 0u;
    int high = 0;
    for (uint rest = k; rest > 0u; rest--) {
        int product_high;
        int product_low;
        imulExtended(LOADI(a, a_at), LOADI(b, b_at), product_high, product_low);
        uint carry;
        low = uaddCarry(low, uint(product_low), carry);
        high += product_high + int(carry);
        a_at += a_strides[3];
        b_at += b_strides[2];
    }
    if (is_i64 != 0u && high != int(low) >> 31) {
        REPORT(node, STATUS_OVERFLOW, int(low));
    }
    STOREI(y, gl_WorkGroupID.z * m * n + i, int(low));
}
