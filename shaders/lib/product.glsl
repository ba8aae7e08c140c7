// What the kernels of a matrix product y = f(alpha a b + beta bias) share: operands, parameters and loads. All
// sums are in f32. With `adds_y`, what y held is added before f.
//
// Operands are batched matrices of any strides, in elements: `*_strides` hold those of batch dim 0, batch dim 1,
// and the matrix. Columns of b come in panels of 4. `b_loads` says how: 0 by element; 1 as vectors along the
// columns, where b_strides[3] is the step from one panel to the next; 2 as vectors along k, where k is a
// multiple of 4. `a_vec4` says that a comes in vectors along k, where k is a multiple of 4. With PRODUCT_OF_TEXELS both
// are texel views, and come as `a_vec4` = 1 and `b_loads` = 1 say.
#ifndef PRODUCT_GLSL
#define PRODUCT_GLSL

#include "lib/access.glsl"
#ifdef NEEDS_SHADER_INT64
#include "lib/words.glsl"
#endif

#ifdef PRODUCT_OF_TEXELS
#include "lib/texels.glsl"
TEXELS(0, a)
TEXELS(1, b)
#else
READS(0, a, T)
READS(1, b, T)
#endif
READS(2, bias, T)
UPDATES(3, y, Y)
PUSH(BASE(a) BASE(b) BASE(bias) BASE(y)
    uint m; uint n; uint k; uint batch_1; float alpha; float beta; float act_a; float act_b;
    uint a_strides[4];    // batch 0, batch 1, row, k
    uint b_strides[4];    // batch 0, batch 1, k, column or panel
    uint bias_strides[4]; // batch 0, batch 1, row, column
    uint y_strides[3];    // batch 0, batch 1, row
)

#include "lib/epilogue.glsl"

uint batch_0_index() { return gl_WorkGroupID.z / batch_1; }
uint batch_1_index() { return gl_WorkGroupID.z % batch_1; }
uint a_batch() { return batch_0_index() * a_strides[0] + batch_1_index() * a_strides[1]; }
uint b_batch() { return batch_0_index() * b_strides[0] + batch_1_index() * b_strides[1]; }

#ifndef PRODUCT_OF_TEXELS

const uint B_ELEMENTS = 0u;
const uint B_ALONG_COLUMNS = 1u;
const uint B_ALONG_K = 2u;

// Elements from the start of b's batch to the panel's first one; columns past the end repeat the last.
uvec4 panel_columns(uint panel) {
    if (b_loads == B_ALONG_COLUMNS) return uvec4(panel * b_strides[3]);
    return min(uvec4(0u, 1u, 2u, 3u) + 4u * panel, uvec4(n - 1u)) * b_strides[3];
}

// Vectors of an operand by their own number, by which loops step with one addition: VECTOR_AT is that of element `i`.
#ifdef ACCESS_SSBO
#define VECTOR_AT(name, i) ((name##_base + (i)) >> 2)
#define LOADV(name, v) vec4(name##_data4[v])
#else
#define VECTOR_AT(name, i) ((i) >> 2)
#define LOADV(name, v) vec4(name##_buffer4(name##_base).data[v])
#endif

// b at one k and the panel's 4 columns; `at` is the offset of k.
vec4 load_b(uint at, uvec4 columns) {
    if (b_loads == B_ALONG_COLUMNS) return LOAD4F(b, at + columns.x);
    return vec4(LOADF(b, at + columns.x), LOADF(b, at + columns.y), LOADF(b, at + columns.z), LOADF(b, at + columns.w));
}

// b at 4 consecutive k, a row each.
mat4 load_b4(uint at, uvec4 columns) {
    if (b_loads == B_ALONG_K) {
        return transpose(mat4(LOAD4F(b, at + columns.x), LOAD4F(b, at + columns.y), LOAD4F(b, at + columns.z), LOAD4F(b, at + columns.w)));
    }
    uint step = b_strides[2];
    return mat4(load_b(at, columns), load_b(at + step, columns), load_b(at + 2u * step, columns), load_b(at + 3u * step, columns));
}

// a at 4 consecutive k.
vec4 load_a4(uint at) {
    if (a_vec4 != 0u) return LOAD4F(a, at);
    uint step = a_strides[3];
    return vec4(LOADF(a, at), LOADF(a, at + step), LOADF(a, at + 2u * step), LOADF(a, at + 3u * step));
}

#endif

// Scales a sum, adds the bias and what y held, applies the activation and stores, unless the column is past the end.
void finish(uint row, uint column, float sum) {
    if (column >= n) return;
    float value = alpha * sum;
    if (has_bias != 0u) {
        uint at = batch_0_index() * bias_strides[0] + batch_1_index() * bias_strides[1];
        value += beta * LOADF(bias, at + row * bias_strides[2] + column * bias_strides[3]);
    }
    uint at = batch_0_index() * y_strides[0] + batch_1_index() * y_strides[1] + row * y_strides[2] + column;
    if (adds_y != 0u) value += LOADF(y, at);
    STOREF(y, at, activate(value));
}

// As `finish` for the 4 columns of a panel; those past the end are the last one again, with its value.
void finish_panel(uint row, uint panel, vec4 sum) {
    uvec4 columns = min(uvec4(0u, 1u, 2u, 3u) + 4u * panel, uvec4(n - 1u));
    for (uint c = 1u; c < 4u; c++) sum[c] = columns[c] == columns[c - 1u] ? sum[c - 1u] : sum[c];
    vec4 value = alpha * sum;
    if (has_bias != 0u) {
        uint at = batch_0_index() * bias_strides[0] + batch_1_index() * bias_strides[1] + row * bias_strides[2];
        for (uint c = 0u; c < 4u; c++) value[c] += beta * LOADF(bias, at + columns[c] * bias_strides[3]);
    }
    uvec4 at = columns + (batch_0_index() * y_strides[0] + batch_1_index() * y_strides[1] + row * y_strides[2]);
    if (adds_y != 0u) {
        for (uint c = 0u; c < 4u; c++) value[c] += LOADF(y, at[c]);
    }
    for (uint c = 0u; c < 4u; c++) STOREF(y, at[c], activate(value[c]));
}

#endif
