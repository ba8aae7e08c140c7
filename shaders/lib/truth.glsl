// Functions whose result is a truth value, as tables: PREDICATES(F) is F(name, condition) for each question about one float
// `v`; COMPARISONS(F, prefix) for each comparison of two floats or two ints `u` and `v`, whose names begin with `prefix`.
// Shared by the kernels for one function and by the one for chains.
#ifndef TRUTH_GLSL
#define TRUTH_GLSL

#include "lib/nan.glsl"

// NaN is not zero.
bool truth(float v) { return magnitude_bits(v) != 0u; }
bool truth(int v) { return v != 0; }
bool less(float u, float v) { return !is_nan(u) && !is_nan(v) && u < v; }
bool less(int u, int v) { return u < v; }
bool equal(float u, float v) { return !is_nan(u) && !is_nan(v) && u == v; }
bool equal(int u, int v) { return u == v; }

#define PREDICATES(F) \
    F(OP_IS_NONZERO, truth(v)) \
    F(OP_IS_ZERO, !truth(v)) \
    F(OP_IS_NAN, is_nan(v)) \
    F(OP_IS_INF, is_inf(v)) \
    F(OP_IS_FINITE, is_finite(v))

#define COMPARISONS(F, prefix) \
    F(prefix##EQ, equal(u, v)) \
    F(prefix##NE, !equal(u, v)) \
    F(prefix##LT, less(u, v)) \
    F(prefix##LE, less(u, v) || equal(u, v)) \
    F(prefix##GT, less(v, u)) \
    F(prefix##GE, less(v, u) || equal(u, v))

#define LOGICAL_FUNCTIONS(F) \
    F(OP_LOGICAL_AND, truth(u) && truth(v)) \
    F(OP_LOGICAL_OR, truth(u) || truth(v)) \
    F(OP_LOGICAL_XOR, truth(u) != truth(v))

#endif
