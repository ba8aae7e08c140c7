// What a store does to a value: the tensor's dtype may be narrower than its elements on the device, and the
// spec constant `round_mode` then says how. A template that stores through STOREF, STOREI or STORE4F declares
// `//! spec ID round_mode = 0`; without it nothing is rounded.
#ifndef ROUND_GLSL
#define ROUND_GLSL

#include "lib/nan.glsl"

#ifndef SPEC_ROUND_MODE
const uint round_mode = 0u;
#endif

const uint ROUND_NONE = 0u;
const uint ROUND_F16 = 1u;
const uint ROUND_BF16 = 2u;
const uint WRAP_I8 = 3u;
const uint WRAP_U8 = 4u;
const uint WRAP_I16 = 5u;
const uint CHECK_I64 = 6u; // the kernel itself checks and reports
const uint ROUND_BOOL = 7u;

// To the nearest half, ties to even, over 65504 to infinity. packHalf2x16 may round towards zero, so by hand:
// adding 0.5 drops the bits below the subnormal spacing of 2^-24.
float round_to_f16(float v) {
    uint sign = floatBitsToUint(v) & 0x80000000u;
    uint bits = magnitude_bits(v);
    if (bits > 0x7f800000u) return v;
    if (bits < 0x38800000u) {
        precise float shifted = uintBitsToFloat(bits) + 0.5;
        precise float rounded = shifted - 0.5;
        return uintBitsToFloat(sign | floatBitsToUint(rounded));
    }
    bits = (bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu;
    return uintBitsToFloat(sign | (bits >= 0x47800000u ? 0x7f800000u : bits));
}

// To the nearest bfloat16, ties to even.
float round_to_bf16(float v) {
    uint bits = floatBitsToUint(v);
    if (is_nan(v)) return uintBitsToFloat(bits | 0x00400000u);
    return uintBitsToFloat((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

// Towards zero; saturates, and NaN gives 0.
int int_of_float(float v) {
    if (is_nan(v)) return 0;
    if (v >= 2147483648.0) return 0x7fffffff;
    if (v <= -2147483648.0) return int(0x80000000u);
    return int(v);
}

float round_float(float v) {
    if (round_mode == ROUND_F16) return round_to_f16(v);
    if (round_mode == ROUND_BF16) return round_to_bf16(v);
    if (round_mode == ROUND_BOOL) return magnitude_bits(v) != 0u ? 1.0 : 0.0;
    return v;
}

int round_int(int v) {
    if (round_mode == WRAP_I8) return bitfieldExtract(v, 0, 8);
    if (round_mode == WRAP_U8) return v & 0xff;
    if (round_mode == WRAP_I16) return bitfieldExtract(v, 0, 16);
    if (round_mode == ROUND_BOOL) return v != 0 ? 1 : 0;
    return v;
}

int int_of_rounded(float v) {
    if (round_mode == ROUND_BOOL) return magnitude_bits(v) != 0u ? 1 : 0;
    return round_int(int_of_float(v));
}

vec4 round_vec4(vec4 v) {
    if (round_mode == ROUND_NONE) return v;
    return vec4(round_float(v.x), round_float(v.y), round_float(v.z), round_float(v.w));
}

ivec4 ivec4_of_rounded(vec4 v) {
    return ivec4(int_of_rounded(v.x), int_of_rounded(v.y), int_of_rounded(v.z), int_of_rounded(v.w));
}

#endif
