//! Rows of a table of codes: y[i, k] = (code[n, k] - zero) * scale with n = index[i].
//!
//! Codes and `side` lie as lib/codes.glsl says, for the rows of the table; biases that stand in `side` are not read.
//! `index` holds checked positions, 0xffffffff where there is none: such a row is left alone. Codes and `side` may be windows of the table:
//! rows `first` up to `first + window`, both multiples of 4; rows elsewhere are left alone.
//! axis dtype = f32 f16 i32
//! axis bits = 8 4
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 has_zeros = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, codes, int)
READS(1, side, float)
READS(2, index, int)
WRITES(3, y, T)
PUSH(BASE(codes) BASE(side) BASE(index) BASE(y)
     uint n_elems; uint cols; uint first; uint window;
     uint blocks;      // of a panel
     uint group;       // codes of a row that share a scale
     uint side_stride; // floats of a panel
)

const uint BLOCK = 32u / BITS;

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint row = i / cols;
    uint k = i - row * cols;
    uint position = uint(LOADI(index, row)) - first;
    if (position >= window) return;
    uint panel = position >> 2;
    uint lane = position & 3u;
    int word = LOADI(codes, (panel * blocks + k / BLOCK) * 4u + lane);
    float code = float((word << int(32u - BITS * (k % BLOCK + 1u))) >> int(32u - BITS));
    uint at = panel * side_stride + (k / group) * (has_zeros != 0u ? 8u : 4u) + lane;
    float zero = has_zeros != 0u ? LOADF(side, at + 4u) : 0.0;
    STOREF(y, i, (code - zero) * LOADF(side, at));
}
