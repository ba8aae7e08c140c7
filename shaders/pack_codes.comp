//! Packs 8-bit codes, which take an int each, into words of 4 unsigned bytes, the first in the low bits, and sums them.
//!
//! `lanes` invocations, a power of two, share a group of a row. y takes `row_words` words a row, those past the codes
//! being 0, then at `sums_at` the sum of each row and group. `x_vec4` says that rows of x come in vectors. Work groups:
//! x and y count groups of `local_x` / `lanes` groups.
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! spec 2 lanes = 64
//! spec 3 x_vec4 = 0
//! local local_x
//! shared 256
#include "lib/access.glsl"

READS(0, x, int)
WRITES(1, y, int)
PUSH(BASE(x) BASE(y)
    uint rows; uint k; uint groups;
    uint group_words; uint row_words;
    uint x_row_stride; uint x_k_stride;
    int least; // the code that becomes 0
    uint sums_at;
)

shared uint partial_sums[gl_WorkGroupSize.x];

ivec4 load_x4(uint at, uint count) {
    if (x_vec4 != 0u && count == 4u) return LOAD4(x, at);
    ivec4 values = ivec4(least);
    for (uint i = 0u; i < count; i++) values[i] = LOAD(x, at + i * x_k_stride);
    return values;
}

void main() {
    uint lane = gl_LocalInvocationID.x % lanes;
    uint item = flat_group_id() * (gl_WorkGroupSize.x / lanes) + gl_LocalInvocationID.x / lanes;
    uint row = item / groups;
    uint group = item % groups;
    uint sum = 0u;
    if (row < rows) {
        uint end = group + 1u == groups ? row_words : (group + 1u) * group_words;
        for (uint word = group * group_words + lane; word < end; word += lanes) {
            uint first = 4u * word;
            uint count = min(k - min(k, first), 4u);
            uvec4 bytes = uvec4(load_x4(row * x_row_stride + first * x_k_stride, count) - least) & 0xffu;
            sum += bytes.x + bytes.y + bytes.z + bytes.w;
            STORE(y, row * row_words + word, int(bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24));
        }
    }
    partial_sums[gl_LocalInvocationID.x] = sum;
    for (uint span = lanes / 2u; span > 0u; span /= 2u) {
        barrier();
        if (lane < span) partial_sums[gl_LocalInvocationID.x] += partial_sums[gl_LocalInvocationID.x + span];
    }
    if (lane == 0u && row < rows) STORE(y, sums_at + item, int(partial_sums[gl_LocalInvocationID.x]));
}
