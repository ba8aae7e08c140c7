//! Lays out two numbers a channel as `batch_norm` reads them: the a of all channels, then the b.
//!
//! statistics takes means and variances, of which it gives 1 / sqrt(var + eps); affine takes weights and biases.
//! What `has_a` and `has_b` deny is bound, not read, and becomes 1 and 0.
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
WRITES(2, side, float)
PUSH(BASE(a) BASE(b) BASE(side) uint channels; float eps;)

void main() {
    uint c = flat_invocation_id();
    if (c >= channels) return;
    float second = has_b != 0u ? LOADF(b, c) : 0.0;
    STOREF(side, c, has_a != 0u ? LOADF(a, c) : 1.0);
    STOREF(side, channels + c, op == OP_STATISTICS ? 1.0 / sqrt(second + eps) : second);
}
