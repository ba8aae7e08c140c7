// Inverse trigonometric and hyperbolic functions, to about 1e-6 (GLSL allows itself 2^-11 or leaves ends undefined).
#ifndef TRIGONOMETRY_GLSL
#define TRIGONOMETRY_GLSL

#include "lib/nan.glsl"

const float PI = 3.14159265358979;
const float HALF_PI = 1.57079632679490;

// Cephes: argument reduction at tan(pi/8) and tan(3 pi/8).
float safe_atan(float v) {
    if (is_nan(v)) return v;
    float a = abs(v);
    float base = 0.0;
    if (is_inf(v)) {
        base = HALF_PI;
        a = 0.0;
    } else if (a > 2.414213562373095) {
        base = HALF_PI;
        a = -1.0 / a;
    } else if (a > 0.4142135623730950) {
        base = 0.5 * HALF_PI;
        a = (a - 1.0) / (a + 1.0);
    }
    float q = a * a;
    float p = (((8.05374449538e-2 * q - 1.38776856032e-1) * q + 1.99777106478e-1) * q - 3.33329491539e-1) * q * a + a;
    return sign_bit(v) ? -(base + p) : base + p;
}

float safe_atan2(float y, float x) {
    if (is_nan(x) || is_nan(y)) return NAN;
    float angle;
    if (is_inf(x) && is_inf(y)) angle = 0.5 * HALF_PI;
    else if (y == 0.0 || is_inf(x)) angle = 0.0;
    else if (x == 0.0 || is_inf(y)) angle = HALF_PI;
    else angle = safe_atan(abs(y) / abs(x));
    if (sign_bit(x)) angle = PI - angle;
    return sign_bit(y) ? -angle : angle;
}

// asin for 0 <= v <= 0.5.
float asin_core(float v) {
    float q = v * v;
    float p = (((4.2163199048e-2 * q + 2.4181311049e-2) * q + 4.5470025998e-2) * q + 7.4953002686e-2) * q + 1.6666752422e-1;
    return p * q * v + v;
}

float safe_asin(float v) {
    float a = abs(v);
    if (is_nan(v) || a > 1.0) return NAN;
    float result = a > 0.5 ? HALF_PI - 2.0 * asin_core(sqrt(0.5 * (1.0 - a))) : asin_core(a);
    return sign_bit(v) ? -result : result;
}

float safe_acos(float v) {
    float a = abs(v);
    if (is_nan(v) || a > 1.0) return NAN;
    if (a <= 0.5) return HALF_PI - (sign_bit(v) ? -asin_core(a) : asin_core(a));
    float result = 2.0 * asin_core(sqrt(0.5 * (1.0 - a)));
    return sign_bit(v) ? PI - result : result;
}

float safe_sinh(float v) {
    float a = abs(v);
    if (is_nan(v)) return v;
    float result;
    if (a < 1.0) {
        float e = safe_expm1(a);
        result = 0.5 * (e + e / (e + 1.0));
    } else {
        float e = safe_exp(0.5 * a);
        result = 0.5 * e * e - 0.5 / e / e;
    }
    return sign_bit(v) ? -result : result;
}

float safe_cosh(float v) {
    if (is_nan(v)) return v;
    float e = safe_exp(0.5 * abs(v));
    return 0.5 * e * e + 0.5 / e / e;
}

float safe_asinh(float v) {
    if (is_nan(v) || is_inf(v)) return v;
    float a = abs(v);
    float result = a > 1e9 ? safe_log(a) + 0.693147180559945 : safe_log1p(a + a * a / (1.0 + sqrt(1.0 + a * a)));
    return sign_bit(v) ? -result : result;
}

float safe_acosh(float v) {
    if (is_nan(v) || v < 1.0) return NAN;
    if (v > 1e9) return safe_log(v) + 0.693147180559945;
    float t = v - 1.0;
    return safe_log1p(t + sqrt(2.0 * t + t * t));
}

float safe_atanh(float v) {
    float a = abs(v);
    if (is_nan(v) || a > 1.0) return NAN;
    float result = a == 1.0 ? INFINITY : 0.5 * safe_log1p(2.0 * a / (1.0 - a));
    return sign_bit(v) ? -result : result;
}

#endif
