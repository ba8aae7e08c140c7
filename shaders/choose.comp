//! Element by element `a` where the condition holds, else `b`, into a contiguous result.
//!
//! `number_side` says which of a and b are numbers (`a_number`, `b_number`; in the integer variant `a_int`, `b_int`):
//! 0 none, 1 a, 2 b, 3 both. A number's operand slot still takes a tensor, which is not read.
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 3 number_side = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/pointwise.glsl"

READS(0, condition, int)
READS(1, a, T)
READS(2, b, T)
WRITES(3, y, T)
PUSH(BASE(condition) BASE(a) BASE(b) BASE(y) POINTWISE_PARAMS float a_number; float b_number; int a_int; int b_int; uint condition_strides[4]; uint a_strides[4]; uint b_strides[4];)

#ifdef DTYPE_I32
#define V4 ivec4
#define GATHER GATHERI
#define SCATTER SCATTERI
#define A_NUMBER a_int
#define B_NUMBER b_int
#else
#define V4 vec4
#define GATHER GATHERF
#define SCATTER SCATTERF
#define A_NUMBER a_number
#define B_NUMBER b_number
#endif

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    uvec3 at = pointwise_offsets(i, sizes, condition_strides, a_strides, b_strides);
    ivec4 holds = GATHERI(condition, at.x, condition_strides[3]);
    V4 u = (number_side & NUMBER_LEFT) != 0u ? V4(A_NUMBER) : GATHER(a, at.y, a_strides[3]);
    V4 v = (number_side & NUMBER_RIGHT) != 0u ? V4(B_NUMBER) : GATHER(b, at.z, b_strides[3]);
    V4 result;
    FOUR(result, holds[k] != 0 ? u[k] : v[k])
    SCATTER(y, i, result)
}
