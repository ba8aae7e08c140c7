//! Equally spaced numbers: y[i] = start + (i + first) * step.
//!
//! For `dtype=i32` start and step are integers. For floats they are bits of floats, with what their rounding to 32 bits
//! left out in `start_low` and `step_low`; the sum is rounded once, as if it were computed with more bits.
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

WRITES(0, y, T)
PUSH(BASE(y) uint n_elems; uint start; uint start_low; uint step_high; uint step_low; int first;)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    int n = int(i) + first;
#ifdef DTYPE_I32
    STOREI(y, i, int(start) + n * int(step_high));
#else
    float count = float(n);
    float a = uintBitsToFloat(start);
    float s = uintBitsToFloat(step_high);
    // What the product and the sum lose to rounding is computed exactly and added last.
    precise float product = count * s;
    precise float product_low = fma(count, s, -product) + count * uintBitsToFloat(step_low);
    precise float sum = a + product;
    precise float back = sum - a;
    precise float sum_low = (a - (sum - back)) + (product - back);
    precise float result = sum + (sum_low + (product_low + uintBitsToFloat(start_low)));
    STOREF(y, i, result);
#endif
}
