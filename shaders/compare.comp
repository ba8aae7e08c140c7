//! Element-wise comparison of two tensors, or of a tensor and a number, into a contiguous bool tensor (one int an
//! element).
//!
//! `number_side` 2: the right one is `number` (or `int_number`); its operand slot still takes a tensor, which is not
//! read. A comparison with NaN does not hold, except ne; NaN counts as true to the logical functions.
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 op = 0
//! spec 3 number_side = 0
//! values op = eq ne lt le gt ge logical_and logical_or logical_xor
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/pointwise.glsl"
#include "lib/truth.glsl"

READS(0, a, T)
READS(1, b, T)
WRITES(2, y, int)
PUSH(BASE(a) BASE(b) BASE(y) POINTWISE_PARAMS float number; int int_number; uint a_strides[4]; uint b_strides[4];)

#ifdef DTYPE_I32
#define V int
#define V4 ivec4
#define GATHER GATHERI
#define NUMBER int_number
#else
#define V float
#define V4 vec4
#define GATHER GATHERF
#define NUMBER number
#endif

#define HOLDS(name, condition) case name: return condition;

bool holds(V u, V v) {
    switch (op) {
        COMPARISONS(HOLDS, OP_)
        LOGICAL_FUNCTIONS(HOLDS)
        default: return false;
    }
}

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    uvec2 at = pointwise_offsets(i, sizes, a_strides, b_strides);
    V4 u = GATHER(a, at.x, a_strides[3]);
    V4 v = number_side == NUMBER_RIGHT ? V4(NUMBER) : GATHER(b, at.y, b_strides[3]);
    ivec4 result;
    FOUR(result, holds(u[k], v[k]) ? 1 : 0)
    SCATTERI(y, i, result)
}
