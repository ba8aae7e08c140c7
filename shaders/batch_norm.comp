//! Batch norm by running statistics: y = (x - mean) * scale * weight + bias, with one of each for every channel.
//!
//! x and y are contiguous; element i is of channel `(i / inner) % channels`. `side` holds the means, then the
//! scales, and with `has_affine` the weights and the biases (see `batch_norm_side`).
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 has_affine = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, x, T)
READS(1, side, float)
WRITES(2, y, T)
PUSH(BASE(x) BASE(side) BASE(y) uint n_elems; uint inner; uint channels;)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint channel = (i / inner) % channels;
    float v = (LOADF(x, i) - LOADF(side, channel)) * LOADF(side, channels + channel);
    if (has_affine != 0u) v = v * LOADF(side, 2u * channels + channel) + LOADF(side, 3u * channels + channel);
    STOREF(y, i, v);
}
