//! Rows times the matrix of their group: row r of y is row r of a times b[groups[r]], and zeros where groups[r] is -1.
//!
//! An invocation has 4 columns of `tile_m` neighbouring rows. Rows of one group share the loads of b; a tile across groups
//! takes one after another. Sums go along k in order, in f32, so no tile changes a result. y is contiguous, a and b
//! have any strides. `b_loads` says how b comes: 0 by element; 1 as vectors along the columns, where n is a multiple
//! of 4; 2 as vectors along k. `a_vec4` says that a comes in vectors along k. Vectors along k want a k that is a multiple of 4.
//! axis dtype = f32 f16
//! axis tile_m = 1 4
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 a_vec4 = 0
//! spec 3 b_loads = 0
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

READS(0, a, T)
READS(1, b, T)
READS(2, groups, int)
WRITES(3, y, T)
PUSH(BASE(a) BASE(b) BASE(groups) BASE(y) uint m; uint n; uint k;
     uint a_strides[2];  // row, k
     uint b_strides[3];  // group, k, column
)

const uint B_ALONG_COLUMNS = 1u;
const uint B_ALONG_K = 2u;

// b at one k and the panel's 4 columns.
vec4 load_b(uint at, uvec4 columns) {
    if (b_loads == B_ALONG_COLUMNS) return LOAD4F(b, at + columns.x);
    return vec4(LOADF(b, at + columns.x), LOADF(b, at + columns.y), LOADF(b, at + columns.z), LOADF(b, at + columns.w));
}

// b at 4 consecutive k, a row each.
mat4 load_b4(uint at, uvec4 columns) {
    if (b_loads == B_ALONG_K) {
        return transpose(mat4(LOAD4F(b, at + columns.x), LOAD4F(b, at + columns.y), LOAD4F(b, at + columns.z), LOAD4F(b, at + columns.w)));
    }
    uint step = b_strides[1];
    return mat4(load_b(at, columns), load_b(at + step, columns), load_b(at + 2u * step, columns), load_b(at + 3u * step, columns));
}

// a at 4 consecutive k.
vec4 load_a4(uint at) {
    if (a_vec4 != 0u) return LOAD4F(a, at);
    uint step = a_strides[1];
    return vec4(LOADF(a, at), LOADF(a, at + step), LOADF(a, at + 2u * step), LOADF(a, at + 3u * step));
}

void main() {
    uint panels = (n + 3u) / 4u;
    uint i = flat_invocation_id();
    uint panel = i % panels;
    uint row = i / panels * TILE_M;
    uint end = min(row + TILE_M, m);
    // Columns past the end repeat the last.
    uvec4 columns = min(uvec4(0u, 1u, 2u, 3u) + 4u * panel, uvec4(n - 1u));
    while (row < end) {
        int group = LOADI(groups, row);
        uint count = 1u;
        while (row + count < end && LOADI(groups, row + count) == group) count++;
        uint a_at[TILE_M];
        vec4 sums[TILE_M];
        for (uint r = 0u; r < TILE_M; r++) {
            a_at[r] = min(row + r, m - 1u) * a_strides[0];
            sums[r] = vec4(0.0);
        }
        uint b_at = uint(max(group, 0)) * b_strides[0];
        uint terms = group < 0 ? 0u : k;
        uvec4 steps = columns * b_strides[2];
        for (uint rest = terms / 4u; rest > 0u; rest--) {
            mat4 w = load_b4(b_at, steps);
            b_at += 4u * b_strides[1];
            for (uint r = 0u; r < TILE_M; r++) {
                vec4 v = load_a4(a_at[r]);
                a_at[r] += 4u * a_strides[1];
                sums[r] += v.x * w[0];
                sums[r] += v.y * w[1];
                sums[r] += v.z * w[2];
                sums[r] += v.w * w[3];
            }
        }
        for (uint rest = terms % 4u; rest > 0u; rest--) {
            vec4 w = load_b(b_at, steps);
            b_at += b_strides[1];
            for (uint r = 0u; r < TILE_M; r++) {
                sums[r] += LOADF(a, a_at[r]) * w;
                a_at[r] += a_strides[1];
            }
        }
        for (uint r = 0u; r < TILE_M; r++) {
            if (r >= count) break;
            for (uint c = 0u; c < 4u; c++) {
                if (4u * panel + c < n) STOREF(y, (row + r) * n + 4u * panel + c, sums[r][c]);
            }
        }
        row += count;
    }
}
