//! Element-wise functions of one integer tensor, into a contiguous result.
//!
//! clamp is min(max(x, low), high). With `checked` 1 (int64, which is kept in 32 bits) a result that 32 bits do not
//! hold is reported; otherwise it wraps.
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! spec 4 checked = 0
//! values op = neg abs sign clamp bitwise_not square
//! local local_x
#include "lib/access.glsl"
#include "lib/checked.glsl"
#include "lib/pointwise.glsl"

READS(0, x, int)
WRITES(1, y, int)
STATUS(2)
PUSH(BASE(x) BASE(y) BASE(status) POINTWISE_PARAMS int low; int high; uint node; uint x_strides[4];)

const int SMALLEST = int(0x80000000u);

int report_overflow(bool overflow, int value) {
    if (checked != 0u && overflow) { REPORT(node, STATUS_OVERFLOW, value) }
    return value;
}

int apply(int v) {
    switch (op) {
        case OP_NEG: return report_overflow(v == SMALLEST, -v);
        case OP_ABS: return report_overflow(v == SMALLEST, v < 0 ? -v : v);
        case OP_SIGN: return sign(v);
        case OP_CLAMP: return min(max(v, low), high);
        case OP_BITWISE_NOT: return ~v;
        default: return report_overflow(mul_overflows(v, v), v * v);
    }
}

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    ivec4 v = GATHERI(x, pointwise_offset(i, sizes, x_strides), x_strides[3]);
    ivec4 result;
    FOUR(result, apply(v[k]))
    SCATTERI(y, i, result)
}
