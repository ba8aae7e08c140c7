//! Batch norm by running statistics: y = (x - mean) * scale + shift, with a mean, scale and shift for each channel.
//!
//! x and y are contiguous; element i is of channel `(i / inner) % channels`. `side` holds the means, then the
//! scales, then the shifts (see `batch_norm_side`).
//! axis dtype = f32 f16
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
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
    STOREF(y, i, v + LOADF(side, 2u * channels + channel));
}
