// Rows: elements that belong together, as one row of a softmax, a norm or a reduction. `lanes` invocations (a power
// of two that divides the work group) share a row: each takes every lanes-th element, then they combine. How many
// lanes there are follows from the shapes alone, so results do not depend on the size of a work group.
#ifndef ROWS_GLSL
#define ROWS_GLSL

// Parameters of every kernel over rows, for PUSH.
#define ROW_PARAMS uint rows; uint cols; uint lanes;

#define ROW() (flat_invocation_id() / lanes)
#define LANE() (gl_LocalInvocationID.x & (lanes - 1u))
// Elements that this invocation may visit: none past the last row, where it still meets the barriers.
#define ROW_END() (ROW() < rows ? cols : 0u)

// Declares `type name(type v)`: `v` combined over the lanes of a row, the same value for each of them. Every
// invocation of the work group has to call it.
#define ROW_COMBINE(name, type, combine) \
    shared type name##_lanes[local_x]; \
    type name(type v) { \
        uint at = gl_LocalInvocationID.x; \
        if (lanes > 1u) { \
            barrier(); \
            name##_lanes[at] = v; \
            for (uint step = lanes >> 1; step > 0u; step >>= 1) { \
                barrier(); \
                if (LANE() < step) name##_lanes[at] = combine(name##_lanes[at], name##_lanes[at + step]); \
            } \
            barrier(); \
            v = name##_lanes[at - LANE()]; \
        } \
        return v; \
    }

#define ROW_ADD(a, b) ((a) + (b))

// Rows are read in steps of WIDTH neighbouring elements: 1, or 4 where lowering proved that every row starts at a
// multiple of 4 elements, holds a multiple of 4, and has no gaps. STEP is what one load gives.
#ifndef WIDTH
#define WIDTH 1
#endif
#if WIDTH == 4
#define STEP vec4
#define LOAD_STEP(name, i) LOAD4F(name, i)
#define STORE_STEP(name, i, v) STORE4F(name, i, v)
float step_sum(vec4 v) { return (v.x + v.y) + (v.z + v.w); }
#else
#define STEP float
#define LOAD_STEP(name, i) LOADF(name, i)
#define STORE_STEP(name, i, v) STOREF(name, i, v)
float step_sum(float v) { return v; }
#endif

// Offset of a row's element number `i` where two dims are left: `inner` is the size of the last one.
uint col_offset(uint i, uint n_cols, uint inner, uint strides[2]) {
    if (inner == n_cols) return i * strides[1];
    uint outer = i / inner;
    return outer * strides[0] + (i - outer * inner) * strides[1];
}

#endif
