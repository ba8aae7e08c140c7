// Activation functions on one float, shared by the element-wise kernels and by epilogues. NaN stays NaN.
#ifndef ACTIVATION_GLSL
#define ACTIVATION_GLSL

#include "lib/nan.glsl"

float gelu_erf(float v) { return 0.5 * v * (1.0 + safe_erf(v * 0.7071067811865476)); }
float gelu_tanh(float v) { return 0.5 * v * (1.0 + safe_tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))); }
float silu(float v) { return v * safe_sigmoid(v); }
float hardsigmoid(float v) { return nan_clamp(v + 3.0, 0.0, 6.0) * (1.0 / 6.0); }
float hardswish(float v) { return v * hardsigmoid(v); }

// log(1 / (1 + exp(-v))) without overflow.
float log_sigmoid(float v) {
    if (is_nan(v)) return v;
    return min(v, 0.0) - safe_log1p(safe_exp(-abs(v)));
}

// log(1 + exp(beta v)) / beta; linear above the threshold.
float softplus(float v, float beta, float threshold) {
    float scaled = v * beta;
    if (is_nan(v) || scaled > threshold) return v;
    return (max(scaled, 0.0) + safe_log1p(safe_exp(-abs(scaled)))) / beta;
}

#endif
