// What is done with a sum before it is stored: the function that the spec constant `activation` chooses, with the
// parameters `act_a` and `act_b`. They are the functions of `unary.comp` and `binary.comp`, so a fused one gives
// what it would give alone; clamp is to [a, b], leaky_relu has slope a, scale multiplies by a.
#ifndef EPILOGUE_GLSL
#define EPILOGUE_GLSL

#include "lib/activation.glsl"

float activate(float v) {
    switch (activation) {
        case ACTIVATION_RELU: return nan_max(v, 0.0);
        case ACTIVATION_CLAMP: return nan_clamp(v, act_a, act_b);
        case ACTIVATION_GELU_ERF: return gelu_erf(v);
        case ACTIVATION_GELU_TANH: return gelu_tanh(v);
        case ACTIVATION_SILU: return silu(v);
        case ACTIVATION_SIGMOID: return safe_sigmoid(v);
        case ACTIVATION_TANH: return safe_tanh(v);
        case ACTIVATION_HARDSWISH: return hardswish(v);
        case ACTIVATION_HARDSIGMOID: return hardsigmoid(v);
        case ACTIVATION_LEAKY_RELU: return is_nan(v) || v > 0.0 ? v : v * act_a;
        case ACTIVATION_SCALE: return v * act_a;
        default: return v;
    }
}

#endif
