// The order of elements as unsigned keys: where keys are equal, the lower index comes first. Include it after the
// template declared x: KEY(i) is the key of its element i, ascending, with NaN above all numbers.
#ifndef ORDER_GLSL
#define ORDER_GLSL

struct Ranked { uint key; uint index; };

// Comes after every element.
const Ranked RANKED_LAST = Ranked(0xffffffffu, 0xffffffffu);

bool comes_before(Ranked a, Ranked b) { return a.key < b.key || (a.key == b.key && a.index < b.index); }

Ranked ranked_first(Ranked a, Ranked b) {
    if (comes_before(b, a)) return b;
    return a;
}

uint int_key(int v) { return uint(v) ^ 0x80000000u; }

// Both zeros are equal.
uint float_key(float v) {
    if (is_nan(v)) return 0xffffffffu;
    uint bits = floatBitsToUint(v);
    if (magnitude_bits(v) == 0u) return 0x80000000u;
    return sign_bit(v) ? ~bits : bits | 0x80000000u;
}

#ifdef DTYPE_I32
#define KEY(i) int_key(LOADI(x, i))
#else
#define KEY(i) float_key(LOADF(x, i))
#endif

#endif
