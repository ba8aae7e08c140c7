// The functions of two floats, as a table: BINARY_FUNCTIONS(F) is F(name, expression) for each, where the expression has
// the floats `u` and `v` and the number `alpha`. Shared by the kernel for one function and by the one for chains.
#ifndef BINARY_GLSL
#define BINARY_GLSL

#include "lib/division.glsl"
#include "lib/trigonometry.glsl"

float hypotenuse(float u, float v) {
    if (is_inf(u) || is_inf(v)) return INFINITY;
    float large = nan_max(abs(u), abs(v));
    float ratio = nan_min(abs(u), abs(v)) / large;
    return large == 0.0 ? 0.0 : large * sqrt(1.0 + ratio * ratio);
}

// u^v for a v of 0.5 or -0.5, as a square root: NaN of -inf.
float root(float u, float v) {
    if (u < 0.0) return NAN;
    float result = sqrt(u);
    return v < 0.0 ? 1.0 / result : result;
}

#define BINARY_FUNCTIONS(F) \
    F(OP_ADD, u + alpha * v) \
    F(OP_MUL, u * v) \
    F(OP_DIV, u / v) \
    F(OP_DIV_TRUNC, trunc(exact_quotient(u, v))) \
    F(OP_DIV_FLOOR, floor_quotient(u, v)) \
    F(OP_MAXIMUM, nan_max(u, v)) \
    F(OP_MINIMUM, nan_min(u, v)) \
    F(OP_FMAX, is_nan(u) ? v : (is_nan(v) ? u : nan_max(u, v))) \
    F(OP_FMIN, is_nan(u) ? v : (is_nan(v) ? u : nan_min(u, v))) \
    F(OP_FMOD, exact_fmod(u, v)) \
    F(OP_REMAINDER, floor_mod(u, v)) \
    F(OP_POW, safe_pow(u, v)) \
    F(OP_ATAN2, safe_atan2(u, v)) \
    F(OP_HYPOT, hypotenuse(u, v)) \
    F(OP_COPYSIGN, uintBitsToFloat(magnitude_bits(u) | (floatBitsToUint(v) & 0x80000000u))) \
    F(OP_GLU, u * safe_sigmoid(v)) \
    F(OP_ROOT, root(u, v)) \
    F(OP_PRELU, is_nan(u) || u > 0.0 ? u : u * v)

#endif
