// Float functions that keep NaN and the ends of the range as PyTorch does. GLSL leaves min, max, clamp, pow,
// tanh and isnan free to lose them, so tests are on bits.
#ifndef NAN_GLSL
#define NAN_GLSL

#define NAN uintBitsToFloat(0x7fc00000u)
#define INFINITY uintBitsToFloat(0x7f800000u)

uint magnitude_bits(float v) { return floatBitsToUint(v) & 0x7fffffffu; }
bool is_nan(float v) { return magnitude_bits(v) > 0x7f800000u; }
bool is_inf(float v) { return magnitude_bits(v) == 0x7f800000u; }
bool is_finite(float v) { return magnitude_bits(v) < 0x7f800000u; }
bool sign_bit(float v) { return (floatBitsToUint(v) >> 31) != 0u; }

// NaN when either is NaN; of equal values the first.
float nan_max(float a, float b) { return is_nan(a) ? a : (is_nan(b) ? b : (a < b ? b : a)); }
float nan_min(float a, float b) { return is_nan(a) ? a : (is_nan(b) ? b : (b < a ? b : a)); }

// As torch.clamp: the upper bound wins when the bounds cross.
float nan_clamp(float v, float low, float high) { return nan_min(nan_max(v, low), high); }

// exp without the freedom to be wrong at the ends.
float safe_exp(float v) {
    if (is_nan(v)) return v;
    if (v > 88.7228) return INFINITY;
    if (v < -103.972) return 0.0;
    return exp(v);
}

// Natural logarithm: NaN below zero, -inf at zero.
float safe_log(float v) {
    if (is_nan(v) || v < 0.0) return NAN;
    if (v == 0.0) return -INFINITY;
    if (is_inf(v)) return v;
    return log(v);
}

// log(1 + v), exact near zero: the rounding of 1 + v is undone by the quotient.
float safe_log1p(float v) {
    precise float sum = 1.0 + v;
    precise float lost = sum - 1.0;
    if (lost == 0.0 || is_inf(v)) return v < 0.0 && is_inf(v) ? NAN : v;
    if (sum <= 0.0 || is_nan(v)) return safe_log(sum);
    return log(sum) * (v / lost);
}

// exp(v) - 1 without cancellation near zero.
float safe_expm1(float v) {
    if (abs(v) < 0.35) {
        float tail = 1.0 / 40320.0 * v + 1.0 / 5040.0;
        tail = tail * v + 1.0 / 720.0;
        tail = tail * v + 1.0 / 120.0;
        tail = tail * v + 1.0 / 24.0;
        tail = tail * v + 1.0 / 6.0;
        tail = tail * v + 0.5;
        return v + v * v * tail;
    }
    return safe_exp(v) - 1.0;
}

// No overflow for large arguments, no cancellation for small ones.
float safe_tanh(float v) {
    if (is_nan(v)) return v;
    float a = min(abs(v), 10.0);
    float e = safe_expm1(2.0 * a);
    float t = e / (e + 2.0);
    return sign_bit(v) ? -t : t;
}

// 1 / (1 + exp(-v)); the exponential never overflows.
float safe_sigmoid(float v) {
    if (is_nan(v)) return v;
    float e = safe_exp(-abs(v));
    float s = 1.0 / (1.0 + e);
    return sign_bit(v) ? e * s : s;
}

// x^y as IEEE pow: negative bases with integral exponents, zeros and infinities.
float safe_pow(float x, float y) {
    if (y == 0.0 || x == 1.0) return 1.0;
    if (is_nan(x) || is_nan(y)) return NAN;
    float a = abs(x);
    bool integral = is_inf(y) || floor(y) == y;
    bool odd = integral && abs(y) < 16777216.0 && mod(abs(y), 2.0) == 1.0;
    float power;
    if (a == 0.0 || is_inf(a)) {
        power = (a == 0.0) == (y > 0.0) ? 0.0 : INFINITY;
    } else if (is_inf(y)) {
        power = a == 1.0 ? 1.0 : ((a > 1.0) == (y > 0.0) ? INFINITY : 0.0);
    } else if (integral && abs(y) <= 8.0) {
        // Small whole exponents by multiplication: exact where the product is.
        power = 1.0;
        for (int k = 0; k < int(abs(y)); k++) power *= a;
        if (y < 0.0) power = 1.0 / power;
    } else if (y == 0.5) {
        power = sqrt(a);
    } else {
        power = safe_exp(y * log(a));
    }
    if (sign_bit(x) && a != 0.0 && !integral && !is_inf(a)) return NAN;
    return sign_bit(x) && odd ? -power : power;
}

// sin and cos as GLSL offers them may be off by 2^-11. This reduces by multiples of pi/2 in three parts, good
// to 1e-6 for arguments up to 8192, and continues with Cephes' polynomials. `quarter` 0 gives sin, 1 gives cos.
float sin_quarter(float v, int quarter) {
    if (!is_finite(v)) return NAN;
    float k = roundEven(v * 0.636619772);
    precise float r = ((v - k * 1.5703125) - k * 4.837512969970703125e-4) - k * 7.54978995489188216e-8;
    float q = r * r;
    float s = r + r * q * ((-1.9515295891e-4 * q + 8.3321608736e-3) * q - 1.6666654611e-1);
    float c = 1.0 - 0.5 * q + q * q * ((2.443315711809948e-5 * q - 1.388731625493765e-3) * q + 4.166664568298827e-2);
    int phase = (int(mod(k, 4.0)) + quarter) & 3;
    float result = (phase & 1) == 0 ? s : c;
    return phase >= 2 ? -result : result;
}
float safe_sin(float v) { return v == 0.0 ? v : sin_quarter(v, 0); }
float safe_cos(float v) { return sin_quarter(v, 1); }

// The error function to 2e-7: its Maclaurin series below 1, above it the Chebyshev fit of erfc from Numerical
// Recipes.
float safe_erf(float v) {
    if (is_nan(v)) return v;
    float a = abs(v);
    float result;
    if (a < 1.0) {
        float q = a * a;
        float p = 1.0 / 685440.0 - q * (1.0 / 6894720.0);
        p = 1.0 / 75600.0 - q * p;
        p = 1.0 / 9360.0 - q * p;
        p = 1.0 / 1320.0 - q * p;
        p = 1.0 / 216.0 - q * p;
        p = 1.0 / 42.0 - q * p;
        p = 1.0 / 10.0 - q * p;
        p = 1.0 / 3.0 - q * p;
        p = 1.0 - q * p;
        result = 1.1283791670955126 * a * p;
    } else if (a < 4.0) {
        float t = 1.0 / (1.0 + 0.5 * a);
        float p = 0.17087277;
        p = -0.82215223 + t * p;
        p = 1.48851587 + t * p;
        p = -1.13520398 + t * p;
        p = 0.27886807 + t * p;
        p = -0.18628806 + t * p;
        p = 0.09678418 + t * p;
        p = 0.37409196 + t * p;
        p = 1.00002368 + t * p;
        p = -1.26551223 + t * p;
        result = 1.0 - t * exp(p - a * a);
    } else {
        result = 1.0;
    }
    return sign_bit(v) ? -result : result;
}

#endif
