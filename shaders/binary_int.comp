//! Element-wise functions of two integer tensors, or of a tensor and a number, into a contiguous result.
//!
//! `number_side` 0: both are tensors; 1: the left one is `number`; 2: the right one is. A number's operand slot still
//! takes a tensor, which is not read. add is a + alpha b.
//!
//! With `checked` 1 (int64, which is kept in 32 bits) a result that 32 bits do not hold is reported; otherwise it wraps.
//! A division by zero is reported.
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! spec 3 number_side = 0
//! spec 4 checked = 0
//! values op = add mul div_trunc div_floor maximum minimum fmod remainder pow bitwise_and bitwise_or bitwise_xor shift_left shift_right
//! local local_x
#include "lib/access.glsl"
#include "lib/checked.glsl"
#include "lib/pointwise.glsl"

READS(0, a, int)
READS(1, b, int)
WRITES(2, y, int)
STATUS(3)
PUSH(BASE(a) BASE(b) BASE(y) BASE(status) POINTWISE_PARAMS int number; int alpha; uint node; uint a_strides[4]; uint b_strides[4];)

const int SMALLEST = int(0x80000000u);

int report_overflow(bool overflow, int value) {
    if (checked != 0u && overflow) { REPORT(node, STATUS_OVERFLOW, value) }
    return value;
}

int quotient(int u, int v) {
    if (v == 0) {
        REPORT(node, STATUS_DOMAIN, u)
        return 0;
    }
    if (v == -1) return report_overflow(u == SMALLEST, -u);
    return u / v;
}

// u - v trunc(u / v); GLSL leaves % of negative numbers undefined.
int fmod_int(int u, int v) {
    if (v == 0) {
        REPORT(node, STATUS_DOMAIN, u)
        return 0;
    }
    return v == -1 ? 0 : u - u / v * v;
}

int power(int base, int exponent) {
    if (exponent < 0) return base == 1 ? 1 : (base == -1 ? ((exponent & 1) == 0 ? 1 : -1) : 0);
    int result = 1;
    bool overflow = false;
    bool base_overflow = false;
    for (int rest = exponent; rest != 0;) {
        if ((rest & 1) != 0) {
            overflow = overflow || base_overflow || mul_overflows(result, base);
            result *= base;
        }
        rest >>= 1;
        if (rest != 0) {
            base_overflow = base_overflow || mul_overflows(base, base);
            base *= base;
        }
    }
    return report_overflow(overflow, result);
}

int shift_left(int u, int v) {
    if (v < 0) return 0;
    int shifted = v > 31 ? 0 : u << v;
    return report_overflow(u != 0 && (v > 31 || shifted >> v != u), shifted);
}

int apply(int u, int v) {
    switch (op) {
        case OP_ADD: return report_overflow(mul_add_overflows(alpha, v, u), u + alpha * v);
        case OP_MUL: return report_overflow(mul_overflows(u, v), u * v);
        case OP_DIV_TRUNC: return quotient(u, v);
        case OP_DIV_FLOOR: {
            int truncated = quotient(u, v);
            return v != 0 && v != -1 && (u < 0) != (v < 0) && truncated * v != u ? truncated - 1 : truncated;
        }
        case OP_MAXIMUM: return max(u, v);
        case OP_MINIMUM: return min(u, v);
        case OP_FMOD: return fmod_int(u, v);
        case OP_REMAINDER: {
            int rest = fmod_int(u, v);
            return rest != 0 && (rest < 0) != (v < 0) ? rest + v : rest;
        }
        case OP_POW: return power(u, v);
        case OP_BITWISE_AND: return u & v;
        case OP_BITWISE_OR: return u | v;
        case OP_BITWISE_XOR: return u ^ v;
        case OP_SHIFT_LEFT: return shift_left(u, v);
        default: return u >> (v < 0 || v > 31 ? 31 : v);
    }
}

void main() {
    uint i = FIRST_ELEMENT();
    if (i >= n_elems) return;
    uvec2 at = pointwise_offsets(i, sizes, a_strides, b_strides);
    ivec4 u = number_side == NUMBER_LEFT ? ivec4(number) : GATHERI(a, at.x, a_strides[3]);
    ivec4 v = number_side == NUMBER_RIGHT ? ivec4(number) : GATHERI(b, at.y, b_strides[3]);
    ivec4 result;
    FOUR(result, apply(u[k], v[k]))
    SCATTERI(y, i, result)
}
