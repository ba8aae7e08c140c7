// 64-bit integers in two words, for sums and products of 32-bit ones that must tell whether they fit.
#ifndef WIDE_GLSL
#define WIDE_GLSL

// Two's complement. A product that left 64 bits has `lost` set and its low word right.
struct Wide { uint low; int high; bool lost; };

Wide wide_of(int v) { return Wide(uint(v), v >> 31, false); }

bool wide_fits(Wide v) { return !v.lost && v.high == int(v.low) >> 31; }

Wide wide_sum(Wide a, Wide b) {
    uint carry;
    uint low = uaddCarry(a.low, b.low, carry);
    return Wide(low, a.high + b.high + int(carry), a.lost || b.lost);
}

// Once a factor needs more than 32 bits, only a zero can bring the product back.
Wide wide_product(Wide a, Wide b) {
    bool zero = wide_fits(a) && a.low == 0u || wide_fits(b) && b.low == 0u;
    if (zero) return wide_of(0);
    int high;
    int low;
    imulExtended(int(a.low), int(b.low), high, low);
    return Wide(uint(low), high, !(wide_fits(a) && wide_fits(b)));
}

#endif
