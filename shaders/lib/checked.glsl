// Whether integer arithmetic leaves 32 bits.
#ifndef CHECKED_GLSL
#define CHECKED_GLSL

bool mul_overflows(int u, int v) {
    int high;
    int low;
    imulExtended(u, v, high, low);
    return high != low >> 31;
}

// Whether u v + w does, although u v alone might.
bool mul_add_overflows(int u, int v, int w) {
    int high;
    int low;
    imulExtended(u, v, high, low);
    uint carry;
    int sum = int(uaddCarry(uint(low), uint(w), carry));
    return high + (w >> 31) + int(carry) != sum >> 31;
}

#endif
