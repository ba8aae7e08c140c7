//! Adds elements of `x` to places of `y` that `index` names: one invocation an element of y, which goes through
//! all entries in order, so the sum does not depend on timing.
//!
//! The space of y has rank 4; its last dim, of sizes[3] positions, is the one that is indexed. Entry n of an
//! element is x[.. + n * x_step], for position index[.. + n * index_step]. A position outside the dim (after
//! its size is added to a negative one, with WRAPS) is reported. `scale` multiplies every x: the bits of a
//! float, or an integer for `dtype=i32`. `flags` holds WRAPS and CHECKS: with the latter,
//! an integer sum that leaves 32 bits is reported.
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
READS(1, index, int)
UPDATES(2, y, T)
STATUS(3)
PUSH(BASE(x) BASE(index) BASE(y) BASE(status)
     uint n_elems; uint entries; uint x_step; uint index_step; uint flags; uint scale; uint node;
     uint sizes[4]; uint x_strides[3]; uint index_strides[3]; uint y_strides[4];)

const uint WRAPS = 1u;
const uint CHECKS = 2u;

#ifdef DTYPE_I32
// a * b, and whether it leaves 32 bits.
int product(int a, int b, inout bool overflow) {
    int high;
    int low;
    imulExtended(a, b, high, low);
    overflow = overflow || high != (low >> 31);
    return low;
}

int sum_of(int a, int b, inout bool overflow) {
    int sum = a + b;
    overflow = overflow || ((a ^ sum) & (b ^ sum)) < 0;
    return sum;
}
#endif

void main() {
    uint rest = flat_invocation_id();
    if (rest >= n_elems) return;
    uint outer = rest / sizes[3];
    uint place = rest - outer * sizes[3];
    uint from = 0u;
    uint at = 0u;
    uint to = place * y_strides[3];
    rest = outer;
    for (int d = 2; d >= 0; d--) {
        outer = rest / sizes[d];
        uint coordinate = rest - outer * sizes[d];
        from += coordinate * x_strides[d];
        at += coordinate * index_strides[d];
        to += coordinate * y_strides[d];
        rest = outer;
    }
#ifdef DTYPE_I32
    int sum = LOADI(y, to);
    bool overflow = false;
#else
    float sum = LOADF(y, to);
#endif
    for (uint n = 0u; n < entries; n++) {
        int k = LOADI(index, at);
        uint position = uint(k) + (k < 0 && (flags & WRAPS) != 0u ? sizes[3] : 0u);
        if (position >= sizes[3]) {
            REPORT(node, STATUS_INDEX, k)
        } else if (position == place) {
#ifdef DTYPE_I32
            sum = sum_of(sum, product(LOADI(x, from), int(scale), overflow), overflow);
#else
            sum += LOADF(x, from) * uintBitsToFloat(scale);
#endif
        }
        at += index_step;
        from += x_step;
    }
#ifdef DTYPE_I32
    if (overflow && (flags & CHECKS) != 0u) {
        REPORT(node, STATUS_OVERFLOW, sum)
    }
    STOREI(y, to, sum);
#else
    STOREF(y, to, sum);
#endif
}
