//! Counts the elements of x, which is contiguous, in `bins` equal parts of the range from lo to hi: y[b] of them in part b.
//!
//! One work group a part; its invocations take every `local_x`-th element each and count in whole numbers, so that no
//! order matters. The part of v is (v - lo) * bins / (hi - lo) without its fraction; hi itself belongs to the last one. NaN
//! and what is outside the range count nowhere. With `from_data` = 1 the range is range[0] to range[1], moved apart by 1
//! at both ends where they are the same, and reported where one is not finite.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! local local_x
//! shared 256
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/division.glsl"

READS(0, x, T)
READS(1, range, T)
WRITES(2, y, float)
STATUS(3)
PUSH(BASE(x) BASE(range) BASE(y) BASE(status) uint n_elems; uint bins; float lo; float hi; uint from_data; uint node;)

// Kind of a report besides those of `lib/access.glsl`.
const uint STATUS_NOT_FINITE = 4u;

shared uint counts[gl_WorkGroupSize.x];

void main() {
    uint bin = flat_group_id();
    uint lane = gl_LocalInvocationID.x;
    float low = lo;
    float high = hi;
    if (from_data != 0u) {
        low = LOADF(range, 0u);
        high = LOADF(range, 1u);
        if (lane == 0u && !(is_finite(low) && is_finite(high))) {
            REPORT(node, STATUS_NOT_FINITE, 0)
        }
        if (low == high) {
            low -= 1.0;
            high += 1.0;
        }
    }
    uint count = 0u;
    for (uint i = lane; i < n_elems; i += gl_WorkGroupSize.x) {
        float v = LOADF(x, i);
        if (!(v >= low && v <= high)) continue;
        float at = exact_quotient((v - low) * float(bins), high - low);
        count += uint(min(uint(int_of_float(at)), bins - 1u) == bin);
    }
    counts[lane] = count;
    barrier();
    if (lane != 0u || bin >= bins) return;
    uint total = 0u;
    for (uint i = 0u; i < gl_WorkGroupSize.x; i++) total += counts[i];
    STORE(y, bin, float(total));
}
