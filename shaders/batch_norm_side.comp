//! What `batch_norm` reads for each channel: its mean, its scale weight / sqrt(var + eps), and its shift.
//!
//! statistics takes means and variances and writes all three, affine then puts weight and bias in. `has_a` and
//! `has_b` say which of weight and bias there are; what is missing is bound and not read.
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 op = 0
//! values op = statistics affine
//! spec 3 has_a = 1
//! spec 4 has_b = 1
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, a, T)
READS(1, b, T)
UPDATES(2, side, float)
PUSH(BASE(a) BASE(b) BASE(side) uint channels; float eps;)

void main() {
    uint c = flat_invocation_id();
    if (c >= channels) return;
    if (op == OP_STATISTICS) {
        STOREF(side, c, LOADF(a, c));
        STOREF(side, channels + c, 1.0 / sqrt(LOADF(b, c) + eps));
        STOREF(side, 2u * channels + c, 0.0);
    } else {
        if (has_a != 0u) STOREF(side, channels + c, LOADF(side, channels + c) * LOADF(a, c));
        if (has_b != 0u) STOREF(side, 2u * channels + c, LOADF(b, c));
    }
}
