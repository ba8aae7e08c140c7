// Division with a remainder as PyTorch defines it: exact, where GLSL's mod and % are neither exact nor defined for
// negative operands.
#ifndef DIVISION_GLSL
#define DIVISION_GLSL

#include "lib/nan.glsl"

// C's fmod: x - y trunc(x / y), exactly, with the sign of x. Long division of the mantissas, 8 bits a step.
float exact_fmod(float x, float y) {
    if (is_nan(x) || is_nan(y) || is_inf(x) || y == 0.0) return NAN;
    uint bits = magnitude_bits(x);
    uint divisor = magnitude_bits(y);
    if (bits < divisor) return x;
    int exponent = max(int(bits >> 23), 1);
    int target = max(int(divisor >> 23), 1);
    uint rest = (bits & 0x7fffffu) | (bits >= 0x800000u ? 0x800000u : 0u);
    divisor = (divisor & 0x7fffffu) | (divisor >= 0x800000u ? 0x800000u : 0u);
    if (divisor == 0u) return NAN;
    rest %= divisor;
    while (exponent > target && rest != 0u) {
        int step = min(exponent - target, 8);
        rest = (rest << step) % divisor;
        exponent -= step;
    }
    uint result = 0u;
    if (rest != 0u) {
        int shift = 23 - findMSB(rest);
        result = shift < target
            ? ((rest << shift) & 0x7fffffu) | (uint(target - shift) << 23)
            : rest << (target - 1);
    }
    return uintBitsToFloat(result | (floatBitsToUint(x) & 0x80000000u));
}

// Python's %: the remainder has the sign of the divisor.
float floor_mod(float x, float y) {
    float rest = exact_fmod(x, y);
    return rest != 0.0 && (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}

// x / y; where the quotient is a whole number, exactly that, which the device's own division need not give.
float exact_quotient(float x, float y) {
    float quotient = x / y;
    float whole = roundEven(quotient);
    precise float back = whole * y;
    return is_finite(quotient) && back == x ? whole : quotient;
}

// x / y rounded down, as Python's //.
float floor_quotient(float x, float y) {
    float quotient = x / y;
    if (y == 0.0 || !is_finite(quotient)) return quotient;
    float rest = exact_fmod(x, y);
    float whole = roundEven((x - rest) / y);
    if (rest != 0.0 && (rest < 0.0) != (y < 0.0)) whole -= 1.0;
    return whole;
}

#endif
